// Runs one of the pack's example workflows the way a user does: opens ComfyUI's page, picks the
// template in its dialog, presses Run, and watches the preview and the result appear.
//
// Usage: node run_template.mjs URL PACK TEMPLATE SCREENSHOT_FOLDER [WIDGETS]
//   PACK is the name of the pack's folder under custom_nodes, TEMPLATE the workflow's without .json.
//   WIDGETS is a JSON object with values of widgets by name, for all nodes that have them, or by
//   type of node and name: {"width": 96, "OmniStageSample.steps": 40}.
//   CHROMIUM names the browser, if it is not `chromium` on the PATH.
//
// Prints one JSON object, see `report` below, and exits with 1 if the workflow did not finish.

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const PAGE_TIMEOUT_MS = 120_000
const RUN_TIMEOUT_MS = 300_000
const DIALOG = '.workflow-template-selector-dialog'

// A browser without a screen, a sandbox (CI runs as root), a GPU or calls to its maker's servers.
const BROWSER_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync'
]

function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM
  try {
    return execFileSync('which', ['chromium'], { encoding: 'utf8' }).trim()
  } catch {
    throw new Error('No Chromium: install Debian\'s package "chromium" or set CHROMIUM to its path')
  }
}

/** Open the page with a new profile, as a first-time user, and wait until ComfyUI is usable. */
async function openPage(context, url, report) {
  const page = context.pages()[0] ?? (await context.newPage())
  page.setDefaultTimeout(PAGE_TIMEOUT_MS)
  page.on('pageerror', (error) => report.page_errors.push(String(error)))
  await page.goto(url)
  await page.waitForFunction(() => window.app?.extensionManager && window.app.graph)
  return page
}

/** Open the template dialog, which greets a first-time user by itself, and load the template. */
async function loadTemplate(page, pack, template) {
  const dialog = page.locator(DIALOG)
  await dialog.waitFor({ timeout: 5_000 }).catch(() => openTemplates(page))
  await dialog.getByRole('button', { name: pack, exact: true }).click()
  await dialog.getByText(template, { exact: true }).first().click()
  await dialog.waitFor({ state: 'hidden' })
  await page.waitForFunction(() => window.app.graph.nodes.length > 0)
}

/** Ask for what nobody has asked for before: the runtime keeps results of earlier runs. */
async function changeWidgets(page, values) {
  await page.evaluate((values) => {
    for (const node of window.app.graph.nodes) {
      for (const widget of node.widgets ?? []) {
        if (widget.name === 'seed') widget.value = Math.floor(Math.random() * 2 ** 48)
        widget.value = values[`${node.type}.${widget.name}`] ?? values[widget.name] ?? widget.value
      }
    }
  }, values)
}

async function openTemplates(page) {
  await page.getByRole('button', { name: 'Templates', exact: true }).click()
}

/** Count the run's events in the page; `window.run` is read by the functions below. */
async function watchRun(page) {
  await page.evaluate(() => {
    const run = { previews: 0, previewed: [], done: false, error: null }
    const { api } = window.app
    api.addEventListener('b_preview_with_metadata', async ({ detail }) => {
      run.previews += 1
      // ComfyUI's own listener was first: this is what it has for the node to draw. A slow page may
      // not come to draw it before the node is done.
      const node = detail.displayNodeId
      const given = window.app.nodePreviewImages[node]?.length > 0
      if (given && (await createImageBitmap(detail.blob)).width > 0) run.previewed.push(node)
    })
    api.addEventListener('execution_success', () => (run.done = true))
    api.addEventListener('execution_interrupted', () => (run.error = 'interrupted'))
    api.addEventListener('execution_error', ({ detail }) => {
      run.error = `${detail.node_type}: ${detail.exception_message}`
    })
    window.run = run
  })
}

/** Wait until a node shows a preview or the run is over; return whether one does. */
async function showsPreview(page) {
  const handle = await page.waitForFunction(
    () => {
      const shown = window.app.graph.nodes.some((node) =>
        node.imgs?.some((image) => image.src.startsWith('blob:') && image.naturalWidth > 0)
      )
      return (shown || window.run.done || window.run.error) && { shown }
    },
    null,
    { timeout: RUN_TIMEOUT_MS }
  )
  return (await handle.jsonValue()).shown
}

/** Wait for the end of the run and for the page to have loaded every picture that nodes show. */
async function results(page) {
  await page.waitForFunction(() => window.run.done || window.run.error, null, {
    timeout: RUN_TIMEOUT_MS
  })
  return page.evaluate(async () => {
    const sizeOfPicture = async (url) => {
      const picture = new Image()
      picture.src = url
      await picture.decode()
      return { width: picture.naturalWidth, height: picture.naturalHeight }
    }
    const sizeOfFilm = async (url) => {
      const film = document.createElement('video')
      film.src = url
      await new Promise((done, fail) => {
        film.onloadeddata = done
        film.onerror = () => fail(film.error)
      })
      return { width: film.videoWidth, height: film.videoHeight }
    }
    // of nodes that show the same file, the page keeps one's output, and null for the others
    const outputs = Object.entries(window.app.nodeOutputs).filter(([, output]) => output)
    const images = outputs.flatMap(([node, output]) =>
      (output.images ?? []).map((image) => ({ node, ...image }))
    )
    for (const image of images) {
      const query = new URLSearchParams({
        filename: image.filename,
        subfolder: image.subfolder,
        type: image.type
      })
      const url = window.app.api.apiURL(`/view?${query}`)
      Object.assign(image, await (/\.mp4$/.test(image.filename) ? sizeOfFilm : sizeOfPicture)(url))
    }
    const kinds = Object.fromEntries(outputs.map(([node, output]) => [node, Object.keys(output)]))
    return { ...window.run, images, kinds }
  })
}

async function runTemplate(page, pack, template, folder, widgets, report) {
  await loadTemplate(page, pack, template)
  await changeWidgets(page, widgets)
  await watchRun(page)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  report.preview_shown = await showsPreview(page)
  if (report.preview_shown) {
    report.preview_screenshot = join(folder, `${template}-preview.png`)
    await page.screenshot({ path: report.preview_screenshot })
  }
  const run = await results(page)
  report.finished = run.done
  report.error = run.error
  report.preview_events = run.previews
  report.preview_nodes = [...new Set(run.previewed)]
  report.images = run.images
  report.output_kinds = run.kinds
}

const [url, pack, template, folder, widgets = '{}'] = process.argv.slice(2)
const report = {
  template,
  finished: false,
  error: null, // what ComfyUI reported, or why this script gave up
  preview_events: 0,
  preview_nodes: [], // ids of the nodes that were given a preview picture during the run
  preview_shown: false, // whether one was seen on a node
  preview_screenshot: null,
  images: [], // {node, filename, subfolder, type, width, height} of every picture or film in the outputs
  output_kinds: {}, // node id -> kinds of its outputs: images, audio, text ...
  page_errors: [], // uncaught JavaScript errors
  screenshot: join(folder, `${template}.png`)
}

mkdirSync(folder, { recursive: true })
const profile = mkdtempSync(join(tmpdir(), 'omnistage-browser-'))
const context = await chromium.launchPersistentContext(profile, {
  executablePath: findBrowser(),
  headless: true,
  args: BROWSER_FLAGS,
  viewport: { width: 1400, height: 900 }
})
const page = await openPage(context, url, report)
try {
  await runTemplate(page, pack, template, folder, JSON.parse(widgets), report)
  await page.waitForTimeout(500) // the canvas draws the last picture in its next frames
} catch (error) {
  report.error ??= String(error)
} finally {
  await page.screenshot({ path: report.screenshot })
  await context.close()
  rmSync(profile, { recursive: true, force: true })
}
console.log(JSON.stringify(report, null, 2))
process.exit(report.finished ? 0 : 1)
