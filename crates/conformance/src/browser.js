// What the tests ask of a page, in the page. Each gives a list of what is wrong.
window.owed = (() => {
  const boxOf = (element) => element.getBoundingClientRect();
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const charts = () => [...document.querySelectorAll('figure .chart')];
  const wanted = (trace) => trace.type === 'bar' || /markers/.test(trace.mode) ? trace.x.length : 0;
  const points = (chart) => [...chart.querySelectorAll('.scatterlayer .points path, .barlayer .points path')];

  // Nothing is wider than the window, no text is beyond its picture, its cell or on top of other text.
  const layout = () => {
    const found = [], say = (what) => found.push(what), wide = document.documentElement.scrollWidth;
    if (wide > innerWidth + 1) say(`the page is ${wide} wide in a window of ${innerWidth}`);
    const groups = new Map();
    for (const text of document.querySelectorAll('svg text')) {
      if (!text.textContent.trim() || text.closest('.hoverlayer') || text.closest('.modebar')) continue;
      const own = text.closest('.chart') ?? text.closest('svg');
      groups.set(own, [...(groups.get(own) ?? []), text]);
    }
    [...groups].forEach(([own, texts], n) => {
      const box = boxOf(own);
      if (box.width < 200 || box.height < 100) say(`picture ${n} is ${box.width} by ${box.height}`);
      if (texts.length < 3) say(`picture ${n} has ${texts.length} texts`);
      const boxes = texts.map((t) => [t.textContent.trim(), boxOf(t)]);
      boxes.forEach(([text, b], i) => {
        if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1)
          say(`picture ${n}: "${text}" lies beyond it`);
        boxes.slice(i + 1).forEach(([other, o]) => {
          const x = Math.min(b.right, o.right) - Math.max(b.left, o.left);
          const y = Math.min(b.bottom, o.bottom) - Math.max(b.top, o.top);
          if (x > 2 && y > 3) say(`picture ${n}: "${text}" and "${other}" lie on top of each other`);
        });
      });
    });
    for (const element of document.querySelectorAll('main td, main th, .legend li, .numbers div, figcaption, main p'))
      if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== 'inline')
        say(`"${element.textContent.slice(0, 60)}" is wider than its place by ${element.scrollWidth - element.clientWidth}`);
    for (const cell of document.querySelectorAll('.wide td'))
      if (!boxOf(cell).width || !boxOf(cell).height) say(`"${cell.textContent}" is not shown`);
    return found;
  };

  // Every point that a picture was given is drawn, and its legend names every series.
  const drawn = () => charts().flatMap((chart, n) => {
    const found = [], given = (chart.data ?? []).reduce((sum, trace) => sum + wanted(trace), 0);
    if (!chart.data) return [`picture ${n} was not drawn`];
    if (points(chart).length !== given) found.push(`picture ${n} has ${points(chart).length} points of ${given}`);
    const names = chart.closest('figure').querySelectorAll('.legend button').length;
    if (names !== chart.data.length) found.push(`picture ${n}: a legend of ${names} for ${chart.data.length} series`);
    return found;
  });

  // Every picture's numbers are behind its links, as many as it draws.
  const data = async () => {
    const found = [];
    for (const [n, chart] of charts().entries()) {
      const [csv, json] = [...chart.closest('figure').querySelectorAll('.data a')];
      const lines = (await (await fetch(csv.href)).text()).trimEnd().split('\n');
      const table = await (await fetch(json.href)).json();
      const given = chart.data.reduce((sum, trace) => sum + trace.x.length / (trace.fill === 'toself' ? 2 : 1), 0);
      if (lines.length - 1 !== given || table.rows.length !== given)
        found.push(`picture ${n}: ${lines.length - 1} lines and ${table.rows.length} rows of ${given}`);
      if (!csv.download.endsWith('.csv') || !json.download.endsWith('.json')) found.push(`picture ${n}: ${csv.download}`);
    }
    return found;
  };

  // The middle of what a pointer is to be put on: a legend's button, a point, a table's head, the switch.
  const target = (what) => {
    const figure = charts().find((c) => c.data?.some(wanted))?.closest('figure');
    const of = {
      legend: () => figure?.querySelector('.legend button'),
      point: () => figure && points(figure)[0],
      head: () => document.querySelector('.wide th button'),
      theme: () => document.querySelector('button.theme'),
    }[what]();
    if (!of) return null;
    of.scrollIntoView({ block: 'center', behavior: 'instant' });
    const box = boxOf(of);
    return [box.x + Math.min(box.width / 2, 20), box.y + box.height / 2];
  };

  // What can be seen; of what the pointer has changed, some time after.
  const state = async (after) => {
    await pause(after);
    const chart = charts().find((c) => c.data?.some(wanted));
    const head = document.querySelector('.wide th button');
    const rows = head ? [...head.closest('table').tBodies[0].rows].map((row) => row.cells[0].textContent) : [];
    return {
      visible: chart ? points(chart).length : 0,
      hidden: chart ? chart.data.filter((trace) => trace.visible === false).length : 0,
      hover: chart ? [...chart.querySelectorAll('.hoverlayer text')].map((t) => t.textContent).join(' ').trim() : '',
      rows,
      sort: head?.closest('th').getAttribute('aria-sort') ?? '',
      ground: getComputedStyle(document.body).backgroundColor,
      // Of a picture's words, or of the page's where there is none.
      ink: charts()[0] ? getComputedStyle(charts()[0].querySelector('.xtitle')).fill : getComputedStyle(document.body).color,
    };
  };
  // Its words, once it has filled itself.
  const text = async () => {
    while (document.querySelector('.live') && document.documentElement.dataset.filled !== 'true') await pause(10);
    return document.body.innerText;
  };
  const count = () => ({ pictures: document.querySelectorAll('figure').length, tables: document.querySelectorAll('.wide table').length });
  return { layout, drawn, data, target, state, text, count };
})();
