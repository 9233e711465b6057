// Plays messages with `web/play.js` on a clock that stands still. Node.js, no browser: the page's
// own modules and its sound are stand-ins. `test_play.py` puts the files where the imports look.
//
// Usage: node play.mjs CASE; fails where something is not played when it should be.

import assert from 'node:assert/strict'

const RATE = 100
const clock = { nowS: 0 }
const played = [] // what was scheduled, in order: { startS, samples, stopped }

globalThis.document = { addEventListener() {} }
globalThis.AudioContext = class {
  state = 'running'
  destination = {}
  get currentTime() {
    return clock.nowS
  }
  createBuffer(channels, length, rate) {
    return {
      duration: length / rate,
      copyToChannel(samples) {
        this.samples = samples
      }
    }
  }
  createBufferSource() {
    const entry = { stopped: false }
    return {
      connect() {},
      start(startS) {
        played.push(Object.assign(entry, { startS, samples: this.buffer.samples }))
      },
      stop() {
        entry.stopped = true
      }
    }
  }
}

const page = await import('./scripts/app.js')
await import('./extensions/omnistage/play.js')
const { extension, events } = page
extension.setup()

function tell(type, detail) {
  events.dispatchEvent(Object.assign(new Event(type), { detail }))
}

function piece(prompt, number, length, last = false) {
  const pcm = Buffer.from(new Int16Array(length).fill(16384).buffer).toString('base64')
  tell('omnistage.sound', { prompt_id: prompt, node: '4', number, rate: RATE, pcm, last })
}

function button(kind) {
  const node = { comfyClass: kind, widgets: [] }
  node.addWidget = (type, name, value, callback, options) => {
    node.widgets.push({ type, name, value, callback, options })
    return node.widgets.at(-1)
  }
  extension.nodeCreated(node)
  return node.widgets[0]
}

/** When each piece begins, in seconds after the first. */
const starts = () => played.map(({ startS }) => Math.round((startS - played[0].startS) * 1e6) / 1e6)
const stopped = () => played.map((entry) => entry.stopped)

const CASES = {
  pieces_follow_each_other_without_a_gap() {
    piece('a', 0, 100)
    piece('a', 1, 50)
    piece('a', 2, 50)
    assert.deepEqual(starts(), [0, 1, 1.5])
    assert.ok(Math.abs(played[0].samples[99] - 0.5) < 1e-3)
  },

  a_sound_that_ran_dry_goes_on_a_little_later() {
    piece('a', 0, 100)
    clock.nowS = 3
    piece('a', 1, 100)
    assert.ok(played[0].startS > 0 && played[0].startS < 0.5)
    assert.ok(played[1].startS > 3 && played[1].startS < 3.5)
  },

  the_next_prompts_sound_waits_for_the_end_of_the_first() {
    piece('a', 0, 100)
    piece('b', 0, 100, true)
    assert.deepEqual(starts(), [0])
    piece('a', 1, 50, true)
    assert.deepEqual(starts(), [0, 1, 1.5])
  },

  stop_cuts_off_the_prompts_own_sound() {
    piece('a', 0, 100, true)
    piece('b', 0, 100)
    tell('execution_interrupted', { prompt_id: 'b' })
    assert.deepEqual(stopped(), [false, true])
    piece('c', 0, 100)
    assert.deepEqual(starts(), [0, 1, 1])
  },

  a_sound_that_ended_in_an_error_does_not_hold_up_the_next() {
    piece('a', 0, 100)
    tell('execution_error', { prompt_id: 'a' })
    piece('b', 0, 100)
    assert.deepEqual(stopped(), [true, false])
  },

  a_lost_server_does_not_hold_up_the_next() {
    piece('a', 0, 100)
    tell('reconnecting')
    piece('b', 0, 100)
    assert.deepEqual(starts(), [0, 1])
    assert.deepEqual(stopped(), [false, false])
  },

  another_attempt_begins_anew() {
    piece('a', 0, 100)
    piece('a', 1, 100)
    piece('a', 0, 100)
    assert.deepEqual(stopped(), [true, true, false])
    assert.deepEqual(starts(), [0, 1, 0])
  },

  the_button_silences_what_is_made_now_and_no_later_prompt() {
    piece('a', 0, 100)
    button('OmniStageCodecDecode').callback()
    piece('a', 1, 100)
    assert.deepEqual(stopped(), [true])
    tell('execution_success', { prompt_id: 'a' })
    piece('b', 0, 100)
    assert.deepEqual(stopped(), [true, false])
  },

  the_button_is_on_nodes_that_play_and_is_not_saved() {
    assert.equal(button('OmniStageSpeak').serialize, false)
    assert.equal(button('OmniStageSpeak').options.serialize, false)
    assert.equal(button('KSampler'), undefined)
  }
}

CASES[process.argv[2]]()
