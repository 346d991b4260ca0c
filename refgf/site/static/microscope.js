"use strict";
// Shows the errors that refgf/site/microscope.py computed. Only the bits of one number are computed here.
(() => {
  const all = window.MICROSCOPE;
  const at = (id) => document.getElementById(id);
  const svgMake = (name, attributes, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  };
  function make(name, attributes = {}, text = "") {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  const RMS = 0;
  const kinds = Object.keys(all.data);
  const wires = Object.keys(all.data[kinds[0]]);
  const orders = Object.keys(all.data[kinds[0]][wires[0]]);

  function draw(found, place) {
    const [left, height] = [70, 220];
    const width = Math.max(160, at("errors").clientWidth - left - 20);
    const values = orders.flatMap((order) => found[order].map((e) => e[RMS])).filter((e) => e > 0);
    const [low, high] = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
    const x = (i) => left + width * i / (all.sizes.length - 1);
    const y = (e) => 12 + height * (high - Math.max(low, Math.log10(e || 1e-99))) / Math.max(1, high - low);
    const label = `${at("order").value}: ${found[at("order").value][place][RMS].toExponential(2)} with ${all.sizes[place]} ranks`;
    const svg = svgMake("svg", { width: left + width + 20, height: height + 58, role: "img", "aria-label": label });
    for (let power = low; power <= high; power++) {
      svg.append(svgMake("path", { class: "axis", d: `M${left} ${y(10 ** power)} H${left + width}`, opacity: 0.3 }));
      svg.append(svgMake("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, `1e${power}`));
    }
    all.sizes.forEach((size, i) => {
      if (width / all.sizes.length < 20 && size % 2) return; // no room for every number
      svg.append(svgMake("text", { x: x(i), y: height + 34, "text-anchor": "middle" }, size));
    });
    svg.append(svgMake("text", { x: left + width / 2, y: height + 50, "text-anchor": "middle" }, "ranks"));
    svg.append(svgMake("text", { x: 12, y: 12 + height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${12 + height / 2})` }, "root mean square error"));
    svg.append(svgMake("path", { class: "axis", d: `M${x(place)} 12 V${12 + height}` }));
    for (const order of orders) {
      const d = found[order].map((e, i) => `${i ? "L" : "M"}${x(i)} ${y(e[RMS])}`).join(" ");
      svg.append(svgMake("path", { class: order === "direct" ? "curve dashed" : "curve", d }));
      svg.append(svgMake("circle", { class: order === at("order").value ? "own" : "best", cx: x(place), cy: y(found[order][place][RMS]), r: 5 }));
    }
    at("errors").replaceChildren(svg);
  }
  // ---- the bits of one number ----

  const TYPES = { float32: [8, 23], float16: [5, 10], bfloat16: [8, 7] }; // bits of exponent and fraction
  const TRIES = ["0.1", "2049", "65520", "6e-8", "1e-40", "3.4e38"];
  function rounded(x, [wide, digits]) { // -> {sign, exponent, fraction: bits, power, value}
    const sign = x < 0 || Object.is(x, -0) ? 1 : 0;
    const bias = 2 ** (wide - 1) - 1;
    let power = 1 - bias; // of a subnormal number
    while (power <= bias && 2 ** (power + 1) <= Math.abs(x)) power += 1;
    const scaled = Math.abs(x) / 2 ** (power - digits); // exact: x is a float32
    let whole = Math.floor(scaled);
    if (scaled - whole > 0.5 || (scaled - whole === 0.5 && whole % 2)) whole += 1;
    if (whole === 2 ** (digits + 1)) { whole /= 2; power += 1; }
    const infinite = power > bias;
    const normal = whole >= 2 ** digits;
    const bits = (n, count) => n.toString(2).padStart(count, "0");
    return {
      sign, power, exponent: bits(infinite ? 2 * bias + 1 : normal ? power + bias : 0, wide),
      fraction: bits(infinite ? 0 : whole % 2 ** digits, digits),
      value: (sign ? -1 : 1) * (infinite ? Infinity : whole * 2 ** (power - digits)),
    };
  }
  function drawBits() {
    const text = at("value").value.trim();
    const x = Math.fround(Number(text));
    const wrong = text === "" || !Number.isFinite(x);
    at("value-said").textContent = wrong ? `"${text}" is no number of float32; try 0.1` : "";
    const head = make("tr");
    for (const name of ["type", "sign", "exponent", "fraction", "arrives as", "relative error"]) head.append(make("th", { scope: "col" }, name));
    const rows = wrong ? [] : Object.entries(TYPES).map(([name, type]) => {
      const { sign, exponent, fraction, power, value } = rounded(x, type);
      const error = x === value ? "0" : Number.isFinite(value) ? Math.abs((value - x) / x).toExponential(1) : "infinite";
      const row = make("tr", { "data-type": name, "data-value": value });
      row.append(make("th", { scope: "row" }, name));
      for (const bits of [sign, `${exponent} (${power})`, fraction]) {
        const cell = make("td");
        cell.append(make("code", {}, bits));
        row.append(cell);
      }
      row.append(make("td", {}, String(Number(value.toPrecision(9)))), make("td", {}, error));
      return row;
    });
    at("bits").replaceChildren(head, ...rows);
  }
  function take(text) {
    at("value").value = text;
    drawBits();
  }
  at("value").addEventListener("input", drawBits);
  at("sum").addEventListener("click", () => take(String(exactSum)));
  at("tries").replaceChildren(...TRIES.flatMap((text) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => take(text));
    return [button, " "];
  }));
  drawBits();

  let exactSum = 0; // of the element that is shown
  function redraw() {
    const place = Number(at("ranks").value);
    const size = all.sizes[place];
    at("ranks-is").textContent = size;
    at("ranks").setAttribute("aria-valuetext", `${size} ranks`);
    const found = all.data[at("kind").value][at("wire").value];
    const [, , , worst, exact, got] = found[at("order").value][place];
    exactSum = exact;
    at("said").textContent = `${at("order").value}, ${size} ranks, ${at("wire").value} on the wire: the largest error is ` +
      `in element ${worst}, whose exact sum is ${exact} and whose computed sum is ${got}.`;
    draw(found, place);
    const head = make("tr");
    for (const name of ["order", "root mean square", "largest", "correctly rounded sums"]) head.append(make("th", { scope: "col" }, name));
    at("numbers").replaceChildren(head, ...orders.map((order) => {
      const [rms, largest, right] = found[order][place];
      const row = make("tr", { "data-order": order, "data-rms": rms, "data-largest": largest, "data-right": right });
      const cells = [rms.toExponential(2), largest.toExponential(2), `${right.toFixed(1)} %`];
      row.append(make("th", { scope: "row" }, order), ...cells.map((text) => make("td", {}, text)));
      return row;
    }));
  }
  for (const [id, values] of [["wire", wires], ["order", orders], ["kind", kinds]]) {
    at(id).replaceChildren(...values.map((value) => make("option", { value }, value)));
    at(id).addEventListener("change", redraw);
  }
  at("wire").value = "float16"; // where the orders differ most
  Object.assign(at("ranks"), { min: 0, max: all.sizes.length - 1, step: 1, value: all.sizes.indexOf(8) });
  at("ranks").addEventListener("input", redraw);
  window.addEventListener("resize", redraw);
  at("microscope").addEventListener("submit", (event) => event.preventDefault());
  window.inAddress(at("microscope"), { ranks: all.sizes });
  redraw();
})();
