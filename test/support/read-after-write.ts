import type { Caller } from "./server.ts";

type Node = Pick<Caller, "rpc">;

async function ask(node: Node, method: string, body: object, headers: Record<string, string> = {}) {
  const answer = await node.rpc("ProjectionService", method, body, { headers });
  if (answer.status === 200) return answer.body;
  throw new Error(`${method}: ${answer.status} ${JSON.stringify(answer.body)}`);
}

export interface ReadsAfterWrites {
  /** Reads that did not show the write before them. */
  stale: number;
  /** What the reads that waited for their write took, and what reads of the same state took without. */
  waitedMs: number[];
  plainMs: number[];
}

/**
 * Appends at one node and reads the projection at another with the sequence of the append, many times in several lanes at
 * once, while a runner folds.
 */
export async function readsAfterWrites(
  nodes: readonly Node[],
  { name, times, lanes, clock }: { name: string; times: number; lanes: number; clock: () => number },
): Promise<ReadsAfterWrites> {
  const runner = nodes[0]!;
  await ask(runner, "RegisterProjection", { name, events: [`${name}.counted`] });
  const found: ReadsAfterWrites = { stale: 0, waitedMs: [], plainMs: [] };
  let left = times;
  let isOver = false;

  async function fold(): Promise<void> {
    while (!isOver) {
      const { events, currentState } = await ask(runner, "PollProjectionEvents", { name });
      const last = events.at(-1);
      if (last)
        await ask(runner, "SaveProjectionState", {
          ...{ name, partitionKey: "__global__", lastEventSeq: last.seq },
          state: { last: Number(last.seq), count: (currentState?.count ?? 0) + events.length },
        });
    }
  }

  async function write(lane: number): Promise<void> {
    for (let at = lane; left-- > 0; at++) {
      const [here, there] = [nodes[at % nodes.length]!, nodes[(at + 1) % nodes.length]!];
      const { headers, body } = await here.rpc("EntityStreamService", "AppendEvent", {
        ...{ entityId: `${name}.${lane}`, entityType: "thing", expectedVersion: -1 },
        ...{ eventName: `${name}.counted`, data: { at } },
      });
      const token = headers.get("x-svc-sequence")!;
      const asked = clock();
      const read = await ask(there, "GetProjection", { name }, { "x-svc-min-sequence": token });
      const answered = clock();
      await ask(there, "GetProjection", { name });
      found.waitedMs.push(answered - asked);
      found.plainMs.push(clock() - answered);
      if (!(read.state?.last >= Number(body.sequence))) found.stale++;
    }
  }

  const folding = fold();
  try {
    await Promise.all(Array.from({ length: lanes }, (_, lane) => write(lane)));
  } finally {
    isOver = true;
    await folding;
  }
  return found;
}
