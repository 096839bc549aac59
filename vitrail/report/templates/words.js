// All that the page shows follows from this one object; it is drawn anew when something of it changes.
const state = { group: 0, layer: facts.groups[0].layers - 1, head: -1, row: 0, shared: false };

const groups = facts.groups.map((group) => {
  const text = atob(block(group.name)), array = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i);
  const weights = facts.exact ? new Float32Array(array.buffer) : Float32Array.from(array, (one) => one / 255);
  const size = group.rows.length * group.columns.length;
  // weights(layer, head): of all rows, one after the other; head -1 is the mean.
  const of = (layer, head) => {
    const at = (number) => weights.subarray((layer * group.heads + number) * size, (layer * group.heads + number + 1) * size);
    if (head >= 0) return at(head);
    const mean = new Float32Array(size);
    for (let number = 0; number < group.heads; number++) at(number).forEach((weight, place) => (mean[place] += weight / group.heads));
    return mean;
  };
  return { ...group, of };
});

const percent = (value) => (100 * value).toFixed(100 * value < 10 ? 2 : 1) + "%";
const shown = (word) => (word === " " ? "␣" : word.trim() || "␣");
const greatest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
const colour = (fraction) => facts.colours[Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, fraction))))];

function make(tag, fields, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

function tint(element, fraction) {
  const [r, g, b] = colour(fraction);
  element.style.background = `rgb(${r}, ${g}, ${b})`;
  element.style.color = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
}

function thumbnail(canvas, values, rows, columns, top) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  values.forEach((value, at) => {
    const [r, g, b] = colour(value / (top || 1));
    image.data.set([r, g, b, 255], 4 * at);
  });
  context.putImageData(image, 0, 0);
}

// What changes with the kind of attention alone.
const CELLS = 4000; // of a matrix, above which it is one picture
let large = null, cells = [], squares = [], rowWords = [], columnWords = [];
function build() {
  const group = groups[state.group];
  cells = [];
  $("heads").replaceChildren(...Array.from({ length: group.layers }, (_, layer) => {
    const line = make("div", { className: "row" }, make("span", { textContent: `layer ${layer + 1}` }));
    line.style.gridTemplateColumns = `4.2em repeat(${group.heads}, minmax(26px, 110px))`;
    for (let head = 0; head < group.heads; head++) {
      const cell = make("button", { className: "cell", title: `layer ${layer + 1}, head ${head + 1}` }, make("canvas", {}));
      cell.setAttribute("aria-label", cell.title);
      cell.onclick = () => change(state.layer === layer && state.head === head ? { head: -1 } : { layer, head });
      cells.push({ cell, layer, head });
      line.append(cell);
    }
    return line;
  }));
  const word = (text, row) => {
    const button = make("button", { className: "word", textContent: shown(text) });
    if (row >= 0) {
      button.onclick = () => change({ row });
      button.onmouseenter = () => change({ row });
    } else button.disabled = true;
    return button;
  };
  rowWords = group.rows.map((text, row) => word(text, row));
  columnWords = group.columns.map((text) => word(text, -1));
  $("rows").replaceChildren(...rowWords);
  $("columns").replaceChildren(...columnWords);
  squares = [];
  large = null;
  if (group.rows.length * group.columns.length > CELLS) {
    large = make("canvas", {});
    large.onmousemove = (event) => change({ row: Math.min(group.rows.length - 1, Math.floor((event.offsetY / large.clientHeight) * group.rows.length)) });
    large.style.width = `${Math.min(900, 4 * group.columns.length)}px`;
    $("matrix").replaceChildren(large);
    return;
  }
  const top = make("tr", {}, make("th", {}), ...group.columns.map((text) => make("th", { className: "top", textContent: shown(text) })));
  const lines = group.rows.map((text, row) => {
    const line = make("tr", {}, make("th", { textContent: shown(text) }));
    group.columns.forEach((other, column) => {
      const square = make("td", {});
      square.onmouseenter = () => change({ row });
      squares.push(square);
      line.append(square);
    });
    return line;
  });
  $("matrix").replaceChildren(make("table", {}, top, ...lines));
}

function draw() {
  const group = groups[state.group], across = group.columns.length;
  const all = cells.map(({ layer, head }) => group.of(layer, head)), tops = all.map(greatest), most = Math.max(...tops);
  cells.forEach(({ cell, layer, head }, at) => {
    thumbnail(cell.firstChild, all[at], group.rows.length, across, state.shared ? most : tops[at]);
    cell.setAttribute("aria-pressed", layer === state.layer && (state.head < 0 || head === state.head));
  });
  const weights = group.of(state.layer, state.head), top = state.shared ? most : greatest(weights);
  if (large) thumbnail(large, weights, group.rows.length, across, top);
  squares.forEach((square, at) => {
    tint(square, weights[at] / (top || 1));
    square.title = `${shown(group.rows[Math.floor(at / across)])} → ${shown(group.columns[at % across])}: ${percent(weights[at])}`;
  });
  const row = weights.subarray(state.row * across, (state.row + 1) * across), best = row.indexOf(greatest(row));
  columnWords.forEach((word, at) => {
    tint(word, row[at] / (greatest(row) || 1));
    word.title = percent(row[at]);
  });
  rowWords.forEach((word, at) => word.setAttribute("aria-pressed", at === state.row));
  document.querySelectorAll("#matrix tr").forEach((line, at) => line.classList.toggle("on", at - 1 === state.row));
  document.querySelectorAll("[data-group]").forEach((button) => button.setAttribute("aria-pressed", Number(button.dataset.group) === state.group));
  $("from").textContent = `Attention ${group.about}, from “${shown(group.rows[state.row])}”.`;
  $("readout").textContent = `${group.name}, layer ${state.layer + 1}, ${state.head < 0 ? "mean of the heads" : "head " + (state.head + 1)}, ` +
    `from “${shown(group.rows[state.row])}”: most to “${shown(group.columns[best])}”, ${percent(row[best])}`;
  if (facts.wrote) wrote(group);
  Object.assign(document.body.dataset, { group: group.name, layer: state.layer, head: state.head, row: state.row });
}

// What each head and each feed-forward wrote to the logit of what is said at the chosen word.
function wrote(group) {
  const place = Math.min(state.row, facts.places.length - 1), parts = facts.wrote.parts[place], heads = group.heads;
  const values = parts.flat().filter((value) => value !== null), most = Math.max(...values.map(Math.abs), 1e-9);
  const total = values.reduce((a, b) => a + b, 0) + facts.wrote.rest[place], signed = (value) => (value > 0 ? "+" : "") + value.toFixed(2);
  const verb = { follows: "follows", stands: "stands at", label: "is the label of" }[facts.asked];
  $("wrote").textContent = `Logit of “${shown(facts.said[place])}”, which ${verb} “${shown(facts.places[place])}”, beyond the mean of all: ${signed(total)}, ` +
    `of which the embedding and biases gave ${signed(facts.wrote.rest[place])}, and each head and feed-forward what stands here.`;
  const top = make("tr", {}, make("th", {}), ...Array.from({ length: heads }, (_, head) => make("th", { textContent: `head ${head + 1}` })), make("th", { textContent: "feed-forward" }));
  const lines = parts.map((row, layer) => make("tr", {}, make("th", { textContent: `layer ${layer + 1}` }), ...row.map((value) => {
    const cell = make("td", { textContent: value === null ? "" : signed(value) }), [r, g, b] = facts.diverging[Math.round(127.5 * (1 + (value || 0) / most))];
    cell.style.background = `rgb(${r}, ${g}, ${b})`;
    cell.style.color = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
    return cell;
  })));
  $("written").replaceChildren(top, ...lines);
}

let waiting = false;
function change(fields) {
  const rebuilt = "group" in fields && fields.group !== state.group;
  Object.assign(state, fields);
  if (rebuilt) {
    const group = groups[state.group];
    state.layer = Math.min(state.layer, group.layers - 1);
    state.head = Math.min(state.head, group.heads - 1);
    state.row = Math.min(state.row, group.rows.length - 1);
    build();
  }
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

document.querySelectorAll("[data-group]").forEach((button) => (button.onclick = () => change({ group: Number(button.dataset.group) })));
$("shared").onchange = () => change({ shared: $("shared").checked });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const group = groups[state.group], round = (value, count) => (value + count) % count;
  const keys = {
    ArrowUp: () => ({ layer: round(state.layer - 1, group.layers) }),
    ArrowDown: () => ({ layer: round(state.layer + 1, group.layers) }),
    ArrowLeft: () => ({ row: round(state.row - 1, group.rows.length) }),
    ArrowRight: () => ({ row: round(state.row + 1, group.rows.length) }),
    "[": () => ({ head: round(Math.max(state.head, 0) - 1, group.heads) }),
    "]": () => ({ head: round(state.head + 1, group.heads) }),
    m: () => ({ head: -1 }),
    g: () => ({ group: round(state.group + 1, groups.length) }),
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  change(keys[event.key]());
});

// What would have been said.
const places = facts.said.length;
const header = make("tr", {}, make("th", { textContent: "after" }), ...facts.lens.map((_, layer) => make("th", { textContent: layer ? `layer ${layer}` : "the embedding" })), make("th", { textContent: { follows: "what follows", stands: "stands there", label: "answer" }[facts.asked] }));
const body = Array.from({ length: places }, (_, place) => make("tr", {}, make("th", { textContent: shown(facts.places[place]) }),
  ...facts.lens.map((layer) => {
    const [best, ...others] = layer[place];
    const cell = make("td", {}, best.token === facts.said[place] ? make("b", { textContent: shown(best.token) }) : shown(best.token), make("span", { className: "soft", textContent: ` ${percent(best.probability)}` }));
    cell.title = [best, ...others].map((one) => `${shown(one.token)} ${percent(one.probability)}`).join(", ");
    return cell;
  }),
  make("td", {}, make("b", { textContent: shown(facts.said[place]) }), make("span", { className: "soft", textContent: ` ${percent(facts.probabilities[place])}` }))));
if (places) $("lens").append(header, ...body);

build();
draw();
