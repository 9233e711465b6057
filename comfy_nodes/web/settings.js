// OmniStage's entries in ComfyUI's settings dialog. `comfy_nodes/settings.py` reads what is saved;
// an environment variable, where set, wins.
import { app } from "../../scripts/app.js";

app.registerExtension({
  name: "OmniStage.Settings",
  settings: [
    {
      id: "OmniStage.address",
      sortOrder: 40,
      category: ["OmniStage", "Runtime", "address"],
      name: "Address",
      tooltip:
        "Where the runtime is, such as http://127.0.0.1:8400 (used when empty). " +
        "Variable: OMNISTAGE_ADDRESS.",
      type: "text",
      defaultValue: "",
    },
    {
      id: "OmniStage.token",
      sortOrder: 30,
      category: ["OmniStage", "Runtime", "token"],
      name: "Token",
      tooltip:
        "Shown to the runtime at the address above, and to no other. Saved as plain text in the " +
        "user folder. Variable: OMNISTAGE_TOKEN.",
      type: "text",
      attrs: { type: "password", autocomplete: "off" },
      defaultValue: "",
    },
    {
      id: "OmniStage.python",
      sortOrder: 20,
      category: ["OmniStage", "Runtime", "python"],
      name: "Python that starts a local runtime",
      tooltip:
        "Path of the Python OmniStage's runtime is installed in. Set: a runtime is started on this " +
        "machine when none answers. Empty: none is started. Variable: OMNISTAGE_PYTHON.",
      type: "text",
      defaultValue: "",
    },
    {
      id: "OmniStage.queueAhead",
      sortOrder: 10,
      category: ["OmniStage", "Queue", "queueAhead"],
      name: "Queue ahead",
      tooltip:
        "Send prompts to the runtime while they wait in the queue, so that they are computed " +
        "together. Variable: OMNISTAGE_QUEUE_AHEAD (0 or 1).",
      type: "boolean",
      defaultValue: true,
    },
  ],
});
