// Runs the project's own modules in Pyodide, all of it from this site. See python.js.
import { loadPyodide } from "../pyodide/pyodide.mjs";

let answer = null;
async function start({ modules, code }) {
  const python = await loadPyodide({ indexURL: new URL("../pyodide/", import.meta.url).href });
  for (const [path, source] of Object.entries(modules)) {
    python.FS.mkdirTree(`/project/${path.split("/").slice(0, -1).join("/")}`);
    python.FS.writeFile(`/project/${path}`, source);
  }
  python.runPython("import sys; sys.path.insert(0, '/project')");
  answer = python.runPython(code);
}
self.addEventListener("message", async ({ data }) => {
  try {
    if (data.modules) await start(data);
    self.postMessage({ text: data.modules ? "" : answer(data.text) });
  } catch (problem) {
    self.postMessage({ error: String(problem.message || problem).trim().split("\n").pop() });
  }
});
