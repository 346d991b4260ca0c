// Runs the project's own modules in Pyodide, all of it from this site. See python.js.
let answer = null;
async function load(disk) { // disk: {name: data: address} where the page comes from a disk
  if (!disk) {
    const { loadPyodide } = await import("../pyodide/pyodide.mjs");
    return loadPyodide({ indexURL: new URL("../pyodide/", import.meta.url).href });
  }
  const { loadPyodide } = await import(disk["pyodide.mjs"]);
  const { default: createPyodideModule } = await import(disk["pyodide.asm.mjs"]);
  const fetchAddress = self.fetch;
  self.fetch = (address) => fetchAddress(disk[String(address).split("/").pop()]);
  return loadPyodide({ indexURL: "file:///pyodide/", createPyodideModule });
}
async function start({ modules, code, disk }) {
  const python = await load(disk);
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
