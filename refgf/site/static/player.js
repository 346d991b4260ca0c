"use strict";
// Replays schedules that Python computed: refgf/site/player.py exported ours, and dropped.py runs in
// the page for a reader's file. Nothing is computed here but counts of messages, and the times of
// our own schedules: exported counts times alpha and beta.
(() => {
  const all = window.PLAYER;
  const at = (id) => document.getElementById(id);
  const [FROM, TO, START, COUNT, STEP] = [0, 1, 2, 3, 4]; // of a message
  const TRAVEL_MS = 700; // of a message
  const state = { algorithm: "ring", ranks: 4, step: 0, rank: 0, column: 0, timer: null };
  let plan = null;

  // ---- words ----

  const digits = (x) => String(Number(x.toPrecision(3)));
  function seconds(t) {
    if (t >= 1) return `${digits(t)} s`;
    return t >= 1e-3 ? `${digits(t * 1e3)} ms` : `${digits(t * 1e6)} us`;
  }
  function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (n >= 1024 && unit < 3) { n /= 1024; unit += 1; }
    return `${digits(n)} ${units[unit]}`;
  }
  const many = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const colour = (rank) => `hsl(${Math.round(360 * rank / state.ranks)} 70% var(--shade))`;
  const own = () => Boolean(plan.slowest); // or a reader's file
  const unit = () => (own() ? "element" : "chunk");
  const inVector = (name) => /^\d/.test(name); // or i0, o0, s0: input, output, scratch
  function place(column) {
    const name = plan.columns[column];
    return inVector(name) ? `${unit()} ${name}` : name;
  }
  function places(first, count) {
    const [a, b] = [plan.columns[first], plan.columns[first + count - 1]];
    if (count === 1) return place(first);
    return inVector(a) ? `${unit()}s ${a} to ${b}` : `${a} to ${b}`;
  }

  // ---- what Python computed ----

  const link = () => ({
    alpha: all.alphas[at("alpha").value], rate: all.rates[at("rate").value],
    bytes: all.bytes[at("bytes").value],
  });
  const elementBytes = () => link().bytes / plan.elements;
  const steps = () => plan.messages.reduce((last, m) => Math.max(last, m[STEP]), 0);
  const now = () => plan.messages.filter((m) => m[STEP] === state.step);

  function times() { // [start, end] of each message in seconds; null while Python computes
    if (!own()) return timesOfPython();
    const { alpha, rate } = link();
    const beta = 8 / (rate * 1e9);
    return plan.messages.map((m, i) => {
      const end = m[STEP] * alpha + plan.slowest[i] * elementBytes() * beta;
      return [end - (alpha + m[COUNT] * elementBytes() * beta), end];
    });
  }
  const inTree = (tree) => (tree < 0 ? null : plan.trees[tree]);
  function leaves(tree) {
    const node = inTree(tree);
    return Array.isArray(node) ? node.flatMap(leaves) : node === null ? [] : [node];
  }
  function sum(tree, outer = true) {
    const node = inTree(tree);
    if (node === null) return "no sum of one element";
    if (!Array.isArray(node)) return `x${node}`;
    const text = node.map((child) => sum(child, false)).join(" + ");
    return outer ? text : `(${text})`;
  }
  function held(until = state.step) { // what each place in memory holds after a step; null: nothing
    const cells = Array.from({ length: state.ranks }, () => plan.columns.map(() => null));
    for (const [step, rank, column, tree, element, result] of plan.writes) {
      if (step > until) break;
      cells[rank][column] = { tree, element, result, isNew: step > 0 && step === until };
    }
    return cells;
  }
  function about(cell, column) { // which element, if its place does not say so
    return plan.columns[column] === String(cell.element) || cell.tree < 0 ? "" : `, ${unit()} ${cell.element}`;
  }

  // ---- drawing ----

  function make(name, attributes = {}, text = "") {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  function draw(name, attributes, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  function bar(ranks) { // a stripe for each rank that is held
    const width = 100 / state.ranks;
    const stripes = ranks.map((rank) => {
      const [a, b] = [rank * width, (rank + 1) * width];
      return `linear-gradient(90deg, transparent ${a}%, ${colour(rank)} ${a}% ${b}%, transparent ${b}%)`;
    });
    return stripes.join(",");
  }

  function drawCell(cell, rank, column) {
    const ranks = cell ? leaves(cell.tree) : [];
    const chosen = rank === state.rank && column === state.column;
    const said = !cell ? "nothing" : cell.tree < 0 ? sum(cell.tree) : `sum of ${ranks.length} of ${state.ranks} ranks`;
    const label = `rank ${rank}, ${place(column)}: ${said}${cell ? about(cell, column) : ""}`;
    const button = make("button", {
      type: "button", tabindex: chosen ? 0 : -1, "data-cell": `${rank}-${column}`, "aria-label": label, title: label,
    }, !cell ? "\u00a0" : cell.tree < 0 ? "?" : ranks.length);
    button.classList.toggle("done", Boolean(cell && cell.result));
    button.classList.toggle("new", Boolean(cell && cell.isNew));
    const inside = (m) => m[FROM] === rank && m[START] <= column && column < m[START] + m[COUNT];
    button.classList.toggle("sent", now().some(inside));
    const stripes = make("span", { class: "bar" });
    stripes.style.backgroundImage = bar(ranks);
    button.append(stripes);
    button.addEventListener("click", () => choose(rank, column));
    const box = make("td", { role: "gridcell", "aria-selected": chosen });
    if (chosen) button.style.boxShadow = "0 0 0 2px var(--accent)";
    box.append(button);
    return box;
  }
  function drawVector() {
    const table = at("vector");
    const focused = table.contains(document.activeElement);
    const head = make("tr", { role: "row" });
    for (const name of ["rank", ...plan.columns]) {
      head.append(make("th", { role: "columnheader", scope: "col" }, name));
    }
    const rows = held().map((cells, rank) => {
      const row = make("tr", { role: "row" });
      row.append(make("th", { role: "rowheader", scope: "row" }, rank));
      row.append(...cells.map((cell, column) => drawCell(cell, rank, column)));
      return row;
    });
    table.replaceChildren(head, ...rows);
    if (focused) focusCell();
  }
  function focusCell() {
    at("vector").querySelector(`[data-cell="${state.rank}-${state.column}"]`).focus();
  }

  function drawTree() {
    const cell = held()[state.rank][state.column];
    const where = `Rank ${state.rank}, ${place(state.column)}`;
    at("tree-said").textContent = cell ? `${where}${about(cell, state.column)}: ${sum(cell.tree)}` : `${where}: nothing`;
    at("tree").replaceChildren();
    if (!cell || cell.tree < 0) return;
    const depth = (tree) => {
      const node = plan.trees[tree];
      return Array.isArray(node) ? 1 + Math.max(...node.map(depth)) : 0;
    };
    const deepest = depth(cell.tree);
    const [width, height] = [34, 26];
    const svg = draw("svg", {
      width: leaves(cell.tree).length * width, height: (deepest + 1) * height + 10, role: "img",
      "aria-label": `summation tree: ${sum(cell.tree)}`,
    });
    let next = 0;
    const add = (tree) => { // -> x of its root
      const node = plan.trees[tree];
      const y = (deepest - depth(tree)) * height + 16;
      if (!Array.isArray(node)) {
        const x = (next++ + 0.5) * width;
        const box = { x: x - 14, y: deepest * height + 4, width: 28, height: 5, style: `fill: ${colour(node)}` };
        const text = { x, y: deepest * height + 24, "text-anchor": "middle" };
        svg.append(draw("rect", box), draw("text", text, `x${node}`));
        return x;
      }
      const children = node.map(add);
      const x = (children[0] + children[1]) / 2;
      node.forEach((child, i) => {
        const below = plan.trees[child];
        const end = Array.isArray(below) ? (deepest - depth(child)) * height + 8 : deepest * height + 4;
        svg.append(draw("path", { class: "branch", d: `M${x} ${y + 3} L${children[i]} ${end}` }));
      });
      svg.append(draw("text", { x, y, "text-anchor": "middle" }, "+"));
      return x;
    };
    add(cell.tree);
    at("tree").replaceChildren(svg);
  }

  function drawTimes() {
    const found = times();
    document.body.classList.toggle("stale", !found);
    if (!found) return;
    const total = found.reduce((latest, [, end]) => Math.max(latest, end), 0);
    const [height, top] = [420, 24];
    const gap = Math.max(42, Math.min(80, Math.floor(at("times").clientWidth / state.ranks)));
    const width = gap * state.ranks;
    const svg = draw("svg", {
      width, height: height + 2 * top, role: "img",
      "aria-label": `time line: the last message arrives after ${seconds(total)}`,
    });
    const x = (rank) => (rank + 0.5) * gap;
    const y = (time) => top + height * time / total;
    for (let rank = 0; rank < state.ranks; rank++) {
      svg.append(draw("text", { x: x(rank), y: 14, "text-anchor": "middle" }, `rank ${rank}`));
      svg.append(draw("path", { class: "axis", d: `M${x(rank)} ${top} V${top + height}` }));
    }
    plan.messages.forEach((m, i) => {
      svg.append(draw("line", {
        x1: x(m[FROM]), y1: y(found[i][0]), x2: x(m[TO]), y2: y(found[i][1]),
        style: `stroke: ${colour(m[FROM])}`, "stroke-width": 1.5,
        class: m[STEP] === state.step ? "now" : m[STEP] > state.step ? "later" : "before",
      }));
    });
    svg.append(draw("text", { x: 4, y: top + height + 16 }, seconds(total)));
    at("times").replaceChildren(svg);
    at("total").textContent = `${seconds(total)} in all`;
    at("total").dataset.seconds = total;
  }

  function drawCounts() {
    const sent = plan.messages.filter((m) => m[STEP] <= state.step);
    const size = elementBytes();
    const count = (messages) => messages.reduce((n, m) => n + m[COUNT], 0);
    at("said").textContent = `Step ${state.step} of ${steps()}: ${many(now().length, "message")}. ` +
      `All ranks so far: ${many(sent.length, "message")}, ${bytes(count(sent) * size)}.`;
    at("messages").replaceChildren(...now().map((m) =>
      make("li", {}, `rank ${m[FROM]} sends ${places(m[START], m[COUNT])} to rank ${m[TO]}`)));
    const head = make("tr");
    for (const name of ["rank", "messages so far", "bytes so far", "messages in all", "bytes in all"]) {
      head.append(make("th", { scope: "col" }, name));
    }
    const rows = plan.sent.map(([messages, elements], rank) => {
      const mine = sent.filter((m) => m[FROM] === rank);
      const row = make("tr");
      const cells = [mine.length, bytes(count(mine) * size), messages, bytes(elements * size)];
      row.append(make("th", { scope: "row" }, rank), ...cells.map((text) => make("td", {}, text)));
      return row;
    });
    at("sent").replaceChildren(head, ...rows);
  }

  function fly(node, from, to) {
    node.classList.add("message");
    node.setAttribute("aria-hidden", "true");
    const frames = [{ transform: `translate(${from.join("px,")}px)` }, { transform: `translate(${to.join("px,")}px)` }];
    const flight = node.animate(frames, { duration: TRAVEL_MS, easing: "ease-in-out", fill: "both" });
    flight.finished.then(() => node.remove(), () => node.remove());
  }
  function target(m, sent, column) { // the column of the receiver in which an element arrives
    const arrived = plan.writes.filter(([step, rank, , , element]) =>
      step === m[STEP] && rank === m[TO] && sent && element === sent.element);
    return (arrived.find(([, , , tree]) => tree === sent.tree) || arrived[0] || [0, 0, column])[2];
  }
  function travel() { // each element that is sent moves to its receiver, and a dot along its line
    for (const old of document.querySelectorAll(".message")) old.remove();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const [room, before] = [at("vector").parentElement, held(state.step - 1)];
    const corner = room.getBoundingClientRect();
    const spot = (rank, column) => {
      const { left, top, width } = at("vector").querySelector(`[data-cell="${rank}-${column}"] .bar`).getBoundingClientRect();
      return { from: [left - corner.left + room.scrollLeft, top - corner.top], width };
    };
    for (const m of now()) {
      for (let column = m[START]; column < m[START] + m[COUNT]; column++) {
        const sent = before[m[FROM]][column];
        const [start, end] = [spot(m[FROM], column), spot(m[TO], target(m, sent, column))];
        const node = make("span", { "data-message": `${m[FROM]}-${m[TO]}` });
        node.style.width = `${start.width}px`;
        node.style.backgroundImage = bar(sent ? leaves(sent.tree) : []);
        room.append(node);
        fly(node, start.from, end.from);
      }
    }
    for (const line of at("times").querySelectorAll("line.now")) {
      const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((name) => line.getAttribute(name));
      const dot = draw("circle", { r: 5, style: `fill: ${line.style.stroke}` });
      line.parentNode.append(dot);
      fly(dot, [x1, y1], [x2, y2]);
    }
  }

  function labels() {
    const { alpha, rate, bytes: size } = link();
    const named = { alpha: seconds(alpha), rate: `${digits(rate)} Gbit/s`, bytes: bytes(size) };
    for (const [id, text] of Object.entries(named)) {
      at(`${id}-is`).textContent = text;
      at(id).setAttribute("aria-valuetext", text);
    }
    at("step").setAttribute("aria-valuetext", `step ${state.step} of ${steps()}`);
  }
  function redraw() {
    at("step").max = steps();
    at("step").value = state.step;
    const ends = { first: 0, back: 0, forward: steps(), last: steps() };
    for (const [id, end] of Object.entries(ends)) at(id).setAttribute("aria-disabled", state.step === end);
    labels(); drawVector(); drawTree(); drawCounts(); drawTimes();
    const where = own() ? [state.algorithm, state.ranks, state.step].map(encodeURIComponent).join("/") : "";
    history.replaceState(null, "", `#${where}`);
  }

  // ---- a reader's file ----

  const say = (text) => { at("file-said").textContent = text; };
  let python = null; // once a file is chosen: a promise of what asks Python
  let last = null; // the file that was chosen last
  let asking = false;
  let answered = {};

  async function start() {
    await window.loadScript("modules.js");
    return window.startPython(window.MODULES, "from refgf.site.dropped import answer; answer");
  }
  function inBase64(file) {
    return new Promise((done, failed) => {
      const reader = new FileReader();
      reader.addEventListener("load", () => done(reader.result.split(",")[1] || ""));
      reader.addEventListener("error", () => failed(reader.error));
      reader.readAsDataURL(file);
    });
  }
  async function open(file) {
    last = file;
    at("drop").open = true;
    say(python ? `${file.name}: Python reads it.` : `${file.name}: Python is being loaded.`);
    const sent = link();
    try {
      const content = file.size <= all.largestFile ? await inBase64(file) : "";
      python ??= start();
      const ask = await python.catch((problem) => { python = null; throw problem; });
      const text = await ask(JSON.stringify({ name: file.name, size: file.size, content, ...sent }));
      if (file === last) show(JSON.parse(text), sent);
    } catch (problem) {
      if (file === last) say(`${file.name}: ${problem.message}`);
    }
  }
  function show(found, sent) {
    say(found.said.join("\n"));
    if (!found.plan) return;
    const ranks = found.plan.sent.length;
    answered = { asked: JSON.stringify({ name: found.name, ...sent }), times: found.times };
    all.algorithms[found.name] = { sizes: [ranks] };
    all.data[found.name] = { [ranks]: found.plan };
    state.algorithm = found.name;
    options("algorithm", Object.keys(all.algorithms), found.name);
    load();
  }
  function timesOfPython() {
    const asked = JSON.stringify({ name: state.algorithm, ...link() });
    if (answered.asked === asked) return answered.times;
    if (asking) return null; // one question at a time: a slider that is dragged skips settings
    asking = true;
    python.then((ask) => ask(asked)).then((text) => {
      answered = { asked, times: JSON.parse(text).times };
      asking = false;
      drawTimes();
    }, (problem) => {
      asking = false;
      say(`${state.algorithm}: ${problem.message}`);
    });
    return null;
  }

  // ---- what a reader does ----

  function choose(rank, column) {
    Object.assign(state, { rank, column });
    drawVector(); drawTree(); focusCell();
  }
  function go(step) {
    const onward = step === state.step + 1 && step <= steps();
    state.step = Math.min(steps(), Math.max(0, step));
    if (state.step === steps()) pause();
    redraw();
    if (onward) travel();
  }
  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    at("play").textContent = "play";
  }
  function play() {
    if (state.timer) { pause(); return; }
    if (state.step === steps()) state.step = 0;
    at("play").textContent = "pause";
    state.timer = setInterval(() => go(state.step + 1), TRAVEL_MS + 500);
    go(state.step + 1);
  }
  function options(id, values, chosen) {
    at(id).replaceChildren(...values.map((value) => make("option", { value }, value)));
    at(id).value = chosen;
  }
  async function load(step = 0) { // the data of one algorithm is a script, so that it works from a disk
    pause();
    const wanted = state.algorithm;
    const { file, sizes } = all.algorithms[wanted];
    if (!sizes.includes(state.ranks)) state.ranks = sizes.find((size) => size >= 8) || sizes[0];
    options("ranks", sizes, state.ranks);
    if (!all.data[wanted]) await window.loadScript(file);
    if (state.algorithm !== wanted) return;
    plan = all.data[wanted][state.ranks];
    Object.assign(state, { rank: 0, column: 0 });
    at("legend").replaceChildren(...Array.from({ length: state.ranks }, (_, rank) => {
      const named = make("span");
      const box = make("i");
      box.style.background = colour(rank);
      named.append(box, `x${rank}`);
      return named;
    }));
    go(step);
  }

  at("algorithm").addEventListener("change", () => { state.algorithm = at("algorithm").value; load(); });
  at("ranks").addEventListener("change", () => { state.ranks = Number(at("ranks").value); load(); });
  for (const [id, values, first] of [["alpha", all.alphas, 1e-5], ["rate", all.rates, 10], ["bytes", all.bytes, 2 ** 20]]) {
    Object.assign(at(id), { min: 0, max: values.length - 1, value: Math.max(0, values.indexOf(first)) });
    at(id).addEventListener("input", () => { labels(); drawCounts(); drawTimes(); });
  }
  at("step").min = 0;
  at("step").addEventListener("input", () => { pause(); go(Number(at("step").value)); });
  at("play").addEventListener("click", play);
  const moves = { first: () => 0, back: () => state.step - 1, forward: () => state.step + 1, last: steps };
  for (const [id, target] of Object.entries(moves)) {
    at(id).addEventListener("click", () => { pause(); go(target()); });
  }
  at("player").addEventListener("submit", (event) => event.preventDefault());
  at("vector").addEventListener("keydown", (event) => {
    const [down, right] = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    }[event.key] || [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    const inside = (n, size) => Math.min(size - 1, Math.max(0, n));
    choose(inside(state.rank + down, state.ranks), inside(state.column + right, plan.columns.length));
  });
  function without(reason) { // no Python
    at("file").disabled = true;
    say(`Only our own schedules: ${reason} A terminal judges files: python -m refgf.oracle schedule FILE`);
  }
  if (!all.python) without("this site was built without Pyodide.");
  else {
    at("file").addEventListener("click", () => { at("file").value = ""; }); // the same file once more
    at("file").addEventListener("change", () => { if (at("file").files[0]) open(at("file").files[0]); });
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      at("drop").classList.add("over");
    });
    document.addEventListener("dragleave", () => at("drop").classList.remove("over"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      at("drop").classList.remove("over");
      if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
    });
  }

  const [algorithm, ranks, step] = location.hash.slice(1).split("/").map(decodeURIComponent);
  if (all.algorithms[algorithm]) {
    Object.assign(state, { algorithm, ranks: Number(ranks) });
  }
  options("algorithm", Object.keys(all.algorithms), state.algorithm);
  load(Number(step) || 0);
})();
