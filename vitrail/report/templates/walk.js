// One step at a time: the matrices that it is made of, and what comes of them.
const SMALL = 8; // rows and columns up to which a matrix is shown as numbers, not as colours alone
const TERMS = 6; // of a sum that are written out
const steps = facts.steps, named = Object.fromEntries(steps.map((step) => [step.name, step]));
const state = { step: Math.max(0, steps.findIndex((step) => "#" + step.name === location.hash)), cell: null };
steps.forEach((step, place) => {
  const text = atob(block(place)), bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  step.values = new Float32Array(bytes.buffer);
  step.at = (row, column) => step.values[row * step.shape[1] + column];
  step.limit = step.values.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0) || 1;
});
function make(tag, fields, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}
// A step turned round, as k is in q kᵀ.
const turned = (step) => ({ ...step, name: step.name + "ᵀ", shape: [...step.shape].reverse(), rows: step.columns, columns: step.rows, at: (row, column) => step.at(column, row) });
const parts = (step) => step.madeOf.map((name, place) => (step.how === "transposed" && place ? turned(named[name]) : named[name]));
const digits = steps[0].shape[0] <= SMALL ? 2 : 3;
const shown = (value) => (value === -Infinity ? "-∞" : value.toFixed(Math.abs(value) >= 100 ? 1 : digits).replace(/^-(0\.?0*)$/, "$1"));
const factor = (value) => (shown(value).startsWith("-") ? `(${shown(value)})` : shown(value));
// W_Q as W with a small Q.
function written(text) {
  return text.split(/([A-Za-z])_(\w+)/).map((part, place, all) => (place % 3 === 2 ? make("sub", { textContent: part }) : part));
}
// The weights on a scale up to the largest of them: of many tokens each gets little.
const colourOf = (step, value) => step.name === "A" ? facts.colours[Math.round(255 * Math.min(1, Math.max(0, value) / step.limit))]
  : value === -Infinity ? [128, 128, 128] : facts.diverging[Math.round((255 * (value / step.limit + 1)) / 2)];
const isSmall = (step) => step.shape[0] <= SMALL && step.shape[1] <= SMALL;

// Which cells of its parts a number is made of: a list of [name, row, column], and the sum, product or quotient that it is.
function origin(step, row, column) {
  const [first, second, third] = parts(step);
  if (step.how === "product" || step.how === "transposed") {
    const terms = first.shape[1], cells = [], products = [];
    for (let i = 0; i < terms; i++) {
      cells.push([first.name, row, i], [second.name, i, column]);
      if (i < TERMS) products.push(`${factor(first.at(row, i))}·${factor(second.at(i, column))}`);
    }
    if (terms > TERMS) products.push(`.. (${terms} terms)`);
    if (third) { cells.push([third.name, 0, column]); products.push(factor(third.at(0, column))); }
    return { cells, text: products.join(" + ") };
  }
  if (step.how === "cell") {
    const value = first.at(row, column), right = step.formula.split(" = ")[1];
    const text = step.name === "m" ? (step.at(row, column) === value ? "t, unchanged" : "") : right.replace(first.name, factor(value));
    return { cells: [[first.name, row, column]], text };
  }
  if (step.how === "sum") return { cells: [[first.name, row, column], [second.name, row, column]], text: `${factor(first.at(row, column))} + ${factor(second.at(row, column))}` };
  if (step.how === "row") {
    const cells = Array.from({ length: first.shape[1] }, (_, i) => [first.name, row, i]);
    if (step.name !== "A") return { cells, text: "" };
    const powers = cells.slice(0, TERMS).map(([, r, c]) => `e^${factor(first.at(r, c))}`), more = cells.length > TERMS ? [".."] : [];
    return { cells, text: `e^${factor(first.at(row, column))} / (${[...powers, ...more].join(" + ")})` };
  }
  return { cells: [], text: "" };
}

function numbers(step, result) {
  const table = make("table", { className: "numbers" }), cells = [];
  if (step.columns.length) table.append(make("tr", {}, make("th"), ...step.columns.map((textContent) => make("th", { textContent }))));
  for (let row = 0; row < step.shape[0]; row++) {
    const line = make("tr", {}, make("th", { textContent: step.rows[row] || "" }));
    for (let column = 0; column < step.shape[1]; column++) {
      const value = step.at(row, column), colour = colourOf(step, value), cell = make("td", { textContent: shown(value) });
      cell.style.background = `rgb(${colour.join()})`;
      cell.style.color = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140 ? "#000" : "#fff";
      if (result) cell.onpointerenter = cell.onclick = () => point([row, column]);
      cells.push(cell);
      line.append(cell);
    }
    table.append(line);
  }
  return { element: table, mark: (row, column, kind) => cells[row * step.shape[1] + column].classList.add(kind), clear: () => cells.forEach((cell) => cell.classList.remove("on", "from")) };
}

function colours(step, result, beside) {
  const [rows, columns] = step.shape, room = Math.min(innerWidth - 40, 1800) / Math.min(beside, innerWidth < 820 ? 1 : beside) - 70;
  // As large as the screen has room for between the words and the foot, with a title above and a scale below.
  const letters = parseFloat(getComputedStyle(document.body).fontSize), foot = document.querySelector(".low").offsetHeight;
  const free = innerHeight - $("board").getBoundingClientRect().top - scrollY - foot - 4.5 * letters;
  const large = Math.max(1, Math.min(48, Math.floor(Math.min(room / columns, Math.max(200, free) / rows))));
  const canvas = make("canvas", { width: columns, height: rows }), context = canvas.getContext("2d");
  Object.assign(canvas.style, { width: `${columns * large}px`, height: `${rows * large}px` });
  const clear = () => {
    const image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++)
      image.data.set([...colourOf(step, step.at(row, column)), 255], 4 * (row * columns + column));
    context.putImageData(image, 0, 0);
  };
  const picture = { element: canvas, clear, mark: (row, column, kind) => { context.fillStyle = kind === "on" ? "#b3462c" : "#1f5fa8"; context.fillRect(column, row, 1, 1); } };
  if (result) canvas.onpointermove = canvas.onpointerdown = (event) => {
    const box = canvas.getBoundingClientRect(), inside = (value, most) => Math.max(0, Math.min(most - 1, Math.floor(value * most)));
    point([inside((event.clientY - box.top) / box.height, rows), inside((event.clientX - box.left) / box.width, columns)]);
  };
  clear();
  return picture;
}

let pieces = {};
function show() {
  const step = steps[state.step], board = $("board"), made = parts(step), sign = { product: ["×", "+"], transposed: ["×"], sum: ["+"] }[step.how] || [];
  pieces = {};
  board.replaceChildren();
  $("formula").replaceChildren(...written(step.formula));
  $("formula").title = step.formula;
  $("words").textContent = step.words;
  const piece = (one, result) => {
    const drawn = isSmall(one) ? numbers(one, result) : colours(one, result, made.length + 1);
    pieces[one.name] = drawn;
    const limit = one.name === "A" ? ["0", shown(one.limit)] : [`-${shown(one.limit)}`, shown(one.limit)];
    const bar = make("canvas", { width: 256, height: 1 }), context = bar.getContext("2d"), image = context.createImageData(256, 1);
    (one.name === "A" ? facts.colours : facts.diverging).forEach((colour, place) => image.data.set([...colour, 255], 4 * place));
    context.putImageData(image, 0, 0);
    const title = make("h2", {}, ...written(one.name), make("small", { textContent: `  ${one.shape[0]} × ${one.shape[1]}` }));
    board.append(make("div", { className: "piece" }, title, make("div", { className: "scroll" }, drawn.element), make("span", { className: "key" }, limit[0], bar, limit[1])));
  };
  made.forEach((part, place) => {
    if (place && sign[place - 1]) board.append(make("span", { className: "sign", textContent: sign[place - 1] }));
    piece(part, false);
  });
  if (made.length) board.append(make("span", { className: "sign", textContent: sign.length ? "=" : "→" }));
  piece(step, true);
  $("place").textContent = `${state.step + 1} of ${steps.length}`;
  $("back").disabled = !state.step;
  $("next").disabled = state.step === steps.length - 1;
  document.querySelectorAll("#steps button").forEach((button, place) => button.setAttribute("aria-current", place === state.step ? "step" : "false"));
  document.body.dataset.step = step.name;
  history.replaceState(null, "", "#" + step.name);
  point([0, 0]);
}

function point(cell) {
  const step = steps[state.step], [row, column] = cell, from = origin(step, row, column);
  state.cell = cell;
  Object.values(pieces).forEach((piece) => piece.clear());
  from.cells.forEach(([name, r, c]) => pieces[name] && pieces[name].mark(r, c, "from"));
  pieces[step.name].mark(row, column, "on");
  const names = [step.rows[row], step.columns[column]].filter(Boolean).join(" → ");
  const where = `${step.name}[${row + 1}, ${column + 1}]${names && ` (${names})`}`, value = shown(step.at(row, column));
  $("told").textContent = [where, from.text, value].filter(Boolean).join(" = ");
  Object.assign(document.body.dataset, { cell: cell.join() });
}

function go(step) {
  state.step = Math.max(0, Math.min(steps.length - 1, step));
  show();
}
function moved(dy, dx) {
  const [rows, columns] = steps[state.step].shape, [row, column] = state.cell;
  point([Math.max(0, Math.min(rows - 1, row + dy)), Math.max(0, Math.min(columns - 1, column + dx))]);
}
steps.forEach((step, place) => $("steps").append(make("button", { title: step.words, onclick: () => go(place) }, ...written(step.name))));
addEventListener("resize", () => { const cell = state.cell; show(); point(cell); });
$("back").onclick = () => go(state.step - 1);
$("next").onclick = () => go(state.step + 1);
const keys = {
  ArrowLeft: () => go(state.step - 1), ArrowRight: () => go(state.step + 1), PageUp: () => go(state.step - 1), PageDown: () => go(state.step + 1),
  Home: () => go(0), End: () => go(steps.length - 1), w: () => moved(-1, 0), s: () => moved(1, 0), a: () => moved(0, -1), d: () => moved(0, 1),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
show();
document.body.dataset.ready = "yes";
