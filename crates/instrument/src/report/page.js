'use strict';
// Light and dark: as the system is set, until the reader says otherwise.
const root = document.documentElement, theme = document.querySelector('.theme');
const stored = (...set) => { try { return set.length ? localStorage.setItem('theme', set[0]) : localStorage.getItem('theme'); } catch { return null; } };
if (stored()) root.dataset.theme = stored();
theme.hidden = false;
theme.onclick = () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  stored(root.dataset.theme = dark ? 'light' : 'dark');
};

// Tables: a head is a button, and sorts by its column; numbers by their size, with their units.
const SIZE = { ns: 1e-9, 'µs': 1e-6, us: 1e-6, ms: 1e-3, s: 1, k: 1e3, M: 1e6, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 1024, MiB: 1 << 20, GiB: 1 << 30 };
const key = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = /^[<>~]?\s*(-?\d+(?: \d{3})*(?:\.\d+)?)\*?\s*([^\d\s]+)?/.exec(text);
  return number ? [0, Number(number[1].replaceAll(' ', '')) * (SIZE[number[2]] ?? 1), text] : [1, 0, text];
};
for (const table of document.querySelectorAll('.wide table')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach((h) => h.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const keyed = [...body.rows].map((row) => [key(row, column), row]);
      keyed.sort(([a], [b]) => (a[0] - b[0] || a[1] - b[1] || a[2].localeCompare(b[2])) * (down ? -1 : 1));
      body.append(...keyed.map(([, row]) => row));
    };
  });
}

// Pictures, and their legends: a press hides a series or shows it; a second one soon after leaves it alone.
const touch = matchMedia('(pointer: coarse)').matches;
for (const figure of document.querySelectorAll('figure:has(.chart)')) {
  const chart = figure.querySelector('.chart');
  const { data, layout } = JSON.parse(figure.querySelector('script').textContent);
  layout.xaxis.nticks = Math.max(3, Math.min(8, Math.round(chart.clientWidth / 90)));
  layout.dragmode = touch ? false : 'zoom';
  Plotly.newPlot(chart, data, layout, { responsive: true, displaylogo: false, displayModeBar: touch ? false : 'hover',
    modeBarButtonsToRemove: ['select2d', 'lasso2d', 'zoomIn2d', 'zoomOut2d', 'autoScale2d'] });
  const buttons = [...figure.querySelectorAll('.legend button')];
  const show = (shown) => {
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', shown(i)));
    Plotly.restyle(chart, { visible: data.map((_, i) => shown(i)) });
  };
  const pressed = (i) => buttons[i].getAttribute('aria-pressed') === 'true';
  buttons.forEach((button, n) => {
    button.onclick = () => { const now = buttons.map((_, i) => pressed(i)); show((i) => i === n ? !now[i] : now[i]); };
    button.ondblclick = () => { const alone = buttons.every((_, i) => pressed(i) === (i === n)); show((i) => alone || i === n); };
  });
}
