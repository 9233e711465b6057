// Plays sound while a node makes it. `comfy_nodes/playback.py` says what a message holds.
import { app } from "../../scripts/app.js";
import { api } from "../../scripts/api.js";

const EVENT = "omnistage.sound";
const NODES = ["OmniStageCodecDecode", "OmniStageSpeak"];
const LEAD_S = 0.15; // before a sound begins, or goes on after it ran dry: pieces come unevenly

/** Samples of base64 16-bit little-endian PCM, -1 to 1. */
function samplesOf(pcm) {
  const bytes = Uint8Array.from(atob(pcm), (char) => char.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true) / 32767);
}

/** Plays one sound after another, each without gaps between its pieces as they come. */
class Player {
  constructor() {
    this.sounds = new Map(); // not yet scheduled to their end, in order; by prompt and node
    this.silenced = new Set();
    this.sources = new Set();
    this.endS = 0;
  }

  /** Take the next piece of a sound. */
  take({ prompt_id: prompt, node, number, rate, pcm, last }) {
    const key = `${prompt} ${node}`;
    if (this.silenced.has(key)) return;
    if (number === 0) this.cut((source) => source.key === key);
    if (number === 0 || !this.sounds.has(key)) this.sounds.set(key, { prompt, pieces: [], ended: false });
    const sound = this.sounds.get(key);
    if (pcm) sound.pieces.push({ rate, samples: samplesOf(pcm) });
    sound.ended = last;
    this.schedule();
  }

  /** Nothing more comes of a prompt; `stopped`: and what was to be heard of it is not wanted. */
  end(prompt, stopped) {
    for (const [key, sound] of this.sounds) {
      if (prompt !== undefined && sound.prompt !== prompt) continue;
      sound.ended = true;
      if (stopped) this.sounds.delete(key);
    }
    if (stopped) this.cut((source) => source.key.startsWith(`${prompt} `));
    for (const key of this.silenced) {
      if (key.startsWith(`${prompt} `)) this.silenced.delete(key);
    }
    this.schedule();
  }

  /** Be silent, also about the rest of what is being made now. */
  silence() {
    for (const [key, sound] of this.sounds) {
      if (!sound.ended) this.silenced.add(key);
    }
    this.sounds.clear();
    this.cut(() => true);
  }

  /** Schedule what has come of the first sound; of the next too, once that is whole. */
  schedule() {
    for (const [key, sound] of this.sounds) {
      for (const piece of sound.pieces.splice(0)) this.play(key, piece);
      if (!sound.ended) return;
      this.sounds.delete(key);
    }
  }

  play(key, { rate, samples }) {
    const context = this.opened();
    const buffer = context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    if (this.endS <= context.currentTime) this.endS = context.currentTime + LEAD_S;
    source.start(this.endS);
    this.endS += buffer.duration;
    const entry = { key, source, endS: this.endS };
    this.sources.add(entry);
    source.onended = () => this.sources.delete(entry);
  }

  cut(which) {
    for (const entry of [...this.sources].filter(which)) {
      entry.source.stop();
      this.sources.delete(entry);
    }
    this.endS = Math.max(0, ...[...this.sources].map((entry) => entry.endS));
  }

  /** The page's sound; a browser may hold it back until something on the page is clicked. */
  opened() {
    if (!this.context) {
      this.context = new AudioContext();
      document.addEventListener("pointerdown", () => this.context.resume());
    }
    if (this.context.state === "suspended") this.context.resume();
    return this.context;
  }
}

const player = new Player();

app.registerExtension({
  name: "OmniStage.Play",

  setup() {
    api.addEventListener(EVENT, ({ detail }) => player.take(detail));
    api.addEventListener("execution_success", ({ detail }) => player.end(detail.prompt_id, false));
    api.addEventListener("execution_error", ({ detail }) => player.end(detail.prompt_id, true));
    api.addEventListener("execution_interrupted", ({ detail }) => player.end(detail.prompt_id, true));
    api.addEventListener("reconnecting", () => player.end(undefined, false));
  },

  /** A button to be silent; it is no part of what a workflow saves. */
  nodeCreated(node) {
    if (!NODES.includes(node.comfyClass)) return;
    const button = node.addWidget("button", "■", null, () => player.silence(), { serialize: false });
    button.serialize = false;
  },
});
