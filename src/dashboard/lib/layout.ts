/** A drawing of what flows from left to right, in layers. */

export interface LaidNode {
  id: string;
  layer: number;
  /** Its place in the layer, from the top. */
  place: number;
}

interface FlowLine {
  from: string;
  to: string;
}

/** How often the order of the layers is mended; more changes little. */
const sweeps = 6;

/** Lines that would lead back are left out, so that every other one leads to a later layer. */
function forward(ids: readonly string[], lines: readonly FlowLine[]): FlowLine[] {
  const next = Map.groupBy(lines, ({ from }) => from);
  const state = new Map<string, "open" | "done">();
  const kept: FlowLine[] = [];
  for (const root of ids) {
    if (state.has(root)) continue;
    state.set(root, "open");
    const path = [{ id: root, rest: [...(next.get(root) ?? [])] }];
    while (path.length > 0) {
      const { id, rest } = path.at(-1)!;
      const line = rest.pop();
      if (!line) {
        state.set(id, "done");
        path.pop();
        continue;
      }
      if (state.get(line.to) === "open") continue;
      kept.push(line);
      if (state.has(line.to)) continue;
      state.set(line.to, "open");
      path.push({ id: line.to, rest: [...(next.get(line.to) ?? [])] });
    }
  }
  return kept;
}

/** Each node stands one layer behind the last of those that lead to it. */
function layersOf(ids: readonly string[], lines: readonly FlowLine[]): Map<string, number> {
  const before = Map.groupBy(lines, ({ to }) => to);
  const layers = new Map<string, number>();
  const waiting = new Map(ids.map((id) => [id, before.get(id)?.length ?? 0]));
  const after = Map.groupBy(lines, ({ from }) => from);
  const ready = ids.filter((id) => waiting.get(id) === 0);
  for (let id = ready.pop(); id !== undefined; id = ready.pop()) {
    const layer = layers.get(id) ?? 0;
    layers.set(id, layer);
    for (const { to } of after.get(id) ?? []) {
      layers.set(to, Math.max(layers.get(to) ?? 0, layer + 1));
      const left = waiting.get(to)! - 1;
      waiting.set(to, left);
      if (left === 0) ready.push(to);
    }
  }
  return layers;
}

/** Nodes stand in each layer by the middle of those that they are joined to, so that few lines cross. */
export function layOut(ids: readonly string[], lines: readonly FlowLine[]): LaidNode[] {
  const layers = layersOf(ids, forward(ids, lines));
  const rows: string[][] = [];
  for (const id of ids) {
    const layer = layers.get(id) ?? 0;
    while (rows.length <= layer) rows.push([]);
    rows[layer]!.push(id);
  }
  const joined = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of lines) {
    joined.get(from)!.push(to);
    joined.get(to)!.push(from);
  }
  const heights = new Map<string, number>();
  const note = (row: readonly string[]) =>
    row.forEach((id, place) => {
      heights.set(id, place - row.length / 2);
    });
  rows.forEach(note);
  const middle = (id: string): number => {
    const others = joined.get(id)!;
    if (others.length === 0) return heights.get(id)!;
    return others.reduce((sum, other) => sum + heights.get(other)!, 0) / others.length;
  };
  for (let sweep = 0; sweep < sweeps; sweep++)
    for (const row of sweep % 2 === 0 ? rows : rows.toReversed()) {
      const middles = new Map(row.map((id) => [id, middle(id)]));
      row.sort((one, other) => middles.get(one)! - middles.get(other)!);
      note(row);
    }
  return rows.flatMap((row, layer) => row.map((id, place) => ({ id, layer, place })));
}
