'use strict';
// Fills the page with what the server says of itself. Names of hosts and paths are text, always.
(() => {
  const at = (id) => document.getElementById(id);
  const short = (n) => n >= 1e9 ? (n / 1e9).toFixed(1) + ' G' : n >= 1e6 ? (n / 1e6).toFixed(1) + ' M' : n >= 1e4 ? (n / 1e3).toFixed(1) + ' k' : n >= 10 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(2);
  const time = (ns) => ns >= 1e9 ? (ns / 1e9).toFixed(2) + ' s' : ns >= 1e6 ? (ns / 1e6).toFixed(2) + ' ms' : (ns / 1e3).toFixed(ns < 1e4 ? 2 : 1) + ' µs';
  const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
  // What stands for those that no command ended well for.
  const none = { operation: '–', commands: 0, bytes_per_second: 0, mean_ns: 0, p99_ns: 0, longest_ns: 0 };
  const operations = (asked) => asked.operations.length ? asked.operations : [none];

  // A row's numbers are set right; an empty table says so.
  const rows = (id, list) => {
    const body = at(id), wide = body.closest('table').tHead.rows[0].cells.length;
    const made = list.map((cells) => {
      const row = document.createElement('tr');
      cells.forEach((cell, n) => {
        const td = row.insertCell();
        td.textContent = cell;
        td.className = body.closest('table').tHead.rows[0].cells[n].className;
      });
      return row;
    });
    if (made.length === 0) {
      const row = document.createElement('tr'), td = row.insertCell();
      td.textContent = 'none';
      td.colSpan = wide;
      made.push(row);
    }
    body.replaceChildren(...made);
  };

  const draw = (id, past, of, log, label) => {
    const svg = at(id), make = (name, attributes, text) => {
      const element = document.createElementNS('http://www.w3.org/2000/svg', name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      if (text !== undefined) element.textContent = text;
      svg.append(element);
    };
    svg.replaceChildren();
    const W = svg.clientWidth, H = svg.clientHeight, left = 72, right = W - 12, top = 12, bottom = H - 24;
    const names = [...new Set(past.flatMap((point) => point.operations.map((o) => o.operation)))];
    const all = past.flatMap((point) => point.operations.map(of)).filter((value) => value > 0);
    const end = past.length ? past[past.length - 1].at : 0;
    let low = log ? 10 ** Math.floor(Math.log10(Math.min(...all, 1e6))) : 0;
    let high = log ? 10 ** Math.ceil(Math.log10(Math.max(...all, low * 10))) : Math.max(...all, 1) * 1.1;
    const x = (seconds) => right - (end - seconds) / 3600 * (right - left);
    const part = (value) => log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : value / high;
    const y = (value) => bottom - part(value) * (bottom - top);
    const marks = log ? Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, n) => low * 10 ** n)
      : [0, high / 2, high];
    for (const mark of marks) {
      make('line', { class: 'grid', x1: left, x2: right, y1: y(mark), y2: y(mark) });
      make('text', { x: left - 6, y: y(mark) + 4, 'text-anchor': 'end' }, label(mark));
    }
    for (const [minutes, anchor, text] of [[60, 'start', '1 h ago'], [30, 'middle', '30 min'], [0, 'end', 'now']])
      make('text', { x: x(end - minutes * 60), y: H - 6, 'text-anchor': anchor }, text);
    for (const name of names) {
      const points = past.flatMap((point) => point.operations.filter((o) => o.operation === name).map((o) => [point.at, x(point.at), y(of(o))]));
      // A line goes no further than to where nothing was asked.
      const pieces = [];
      points.forEach((point, n) => n && point[0] - points[n - 1][0] < 15 ? pieces.at(-1).push(point) : pieces.push([point]));
      for (const piece of pieces) make('polyline', { class: name, points: piece.map(([, px, py]) => `${px},${py}`).join(' ') });
      for (const [, cx, cy] of points) make('circle', { class: `${name} points`, cx, cy, r: 1.5 });
    }
    svg.closest('figure').querySelector('.legend').replaceChildren(...names.map((name) => {
      const item = document.createElement('li'), line = document.createElement('i');
      line.className = name;
      item.append(line, name.replace('_', '-'));
      return item;
    }));
  };

  const fill = (state) => {
    const { now, past, hosts, functions, subsystems, traffic } = state;
    const machines = functions.filter((f) => f.connected);
    const reads = now.operations.find((o) => o.operation === 'read');
    at('rate').textContent = short(sum(now.operations, (o) => o.per_second));
    at('p99').textContent = reads ? time(reads.p99_ns) : '–';
    at('way').textContent = short(sum(hosts, (h) => h.under_way) + sum(functions, (f) => f.under_way));
    at('who').textContent = short(hosts.length + machines.length);
    const hours = Math.floor(state.up_s / 3600), minutes = Math.floor(state.up_s / 60) % 60;
    at('up').textContent = `It has served for ${hours} h ${minutes} min: ${short(state.commands)} commands of hosts on the network, `
      + `${short(state.bytes_received)} bytes received and ${short(state.bytes_sent)} sent.`;
    rows('now', now.operations.map((o) => [o.operation.replace('_', '-'), short(o.per_second), short(o.bytes_per_second), time(o.mean_ns),
      time(o.p50_ns), time(o.p99_ns), time(o.longest_ns), o.depth.toFixed(2)]));
    draw('times', past, (o) => o.p99_ns, true, time);
    draw('rates', past, (o) => o.per_second, false, short);
    rows('hosts', hosts.map((h) => [h.host_nqn + (h.encrypted ? ' (TLS)' : h.authenticated ? ' (proved)' : ''), h.address, h.subsystem, h.cntlid, h.io_queues, h.under_way])
      .concat(machines.map((f) => ['a PCIe function’s client', f.socket, f.subsystem, f.cntlid, '–', f.under_way])));
    rows('asked', traffic.hosts.flatMap((h) => operations(h.asked).map((o, n) => [h.host || 'all others', o.operation.replace('_', '-'), short(o.commands),
      short(o.bytes_per_second), time(o.mean_ns), time(o.p99_ns), time(o.longest_ns), n ? '' : short(h.asked.failed)])));
    const named = subsystems.flatMap((s) => s.namespaces.map((n) => ({ ...n, name: `${s.nqn} ${n.nsid}`, subsystem: s.nqn })));
    rows('namespaces', named.flatMap((n) => {
      const asked = traffic.namespaces.find((t) => t.nsid === n.nsid && t.subsystem === n.subsystem)?.asked ?? { operations: [], failed: 0 };
      return operations(asked).map((o, at) => [n.name, n.medium ?? '–', short(n.bytes), o.operation.replace('_', '-'), short(o.commands), time(o.mean_ns), time(o.p99_ns),
        at ? '' : short(asked.failed), at ? '' : short(n.store_failures)]);
    }));
    rows('uses', named.flatMap((n) => n.near_data.commands.map((c) => [n.name, c.operation, c.running, c.ended, time(c.total_ns),
      c.ended ? time(c.total_ns / c.ended) : '–'])));
    rows('slices', named.flatMap((n) => n.near_data.slices.map((s) => [n.name, s.on, short(s.slices), time(s.slices_ns), time(s.worst_slice_ns)])));
    const wrong = [[state.commands_failed, 'commands failed'], [state.connections_refused, 'connections were ended for what was sent'],
      [state.connections_turned_away, 'were turned away'], [state.connections_slow, 'were too slow'], [state.authentications_failed, 'tries to prove a name failed'],
      [state.connections_not_encrypted, 'were not encrypted as they should be'],
      [state.controllers_silent, 'hosts fell silent'], [state.commands_lost, 'commands were lost']].filter(([n]) => n > 0);
    at('counts').textContent = wrong.length ? 'Since the server began: ' + wrong.map(([n, what]) => `${short(n)} ${what}`).join(', ') + '.' : 'None were counted.';
    at('recent').replaceChildren(...state.recent.map((line) => {
      const item = document.createElement('li');
      item.textContent = line;
      return item;
    }));
  };

  const ask = async () => {
    let answered = false;
    try {
      const answer = await fetch('status.json', { cache: 'no-store' });
      if (answer.ok) fill(await answer.json());
      answered = answer.ok;
    } catch { /* said below */ }
    at('silent').hidden = answered;
    document.documentElement.dataset.filled = answered;
    setTimeout(ask, 2000);
  };
  ask();
})();
