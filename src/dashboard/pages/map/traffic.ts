import { useEffect, useRef } from "preact/hooks";
import type { FlowEdge, FlowEnd } from "../../lib/flow.ts";
import { useLive, useTick } from "../../lib/hooks.ts";
import { may } from "../../lib/session.ts";

export const endKey = ({ kind, name }: FlowEnd): string => `${kind} ${name}`;
export const edgeKey = ({ from, verb, to }: FlowEdge): string => `${endKey(from)} ${verb} ${endKey(to)}`;

const tickMs = 1_000;
/** How long a line shows that something went along it. */
const movesMs = 2_500;

export interface Traffic {
  /** Whether something goes along the line now. */
  moves(edge: FlowEdge): boolean;
  /** Runs that it started since the page was opened. */
  started(edge: FlowEdge): number | undefined;
}

/** Traffic as it happens: starts of runs by their frames, everything else by how its count grew. */
export function useTraffic(edges: readonly FlowEdge[]): Traffic {
  const { current: seen } = useRef({
    counts: new Map<string, number>(),
    starts: new Map<string, number>(),
    movedAt: new Map<string, number>(),
    keys: new Set<string>(),
  });
  const now = useTick(tickMs, true);
  useEffect(() => {
    seen.keys = new Set(edges.map(edgeKey));
    for (const edge of edges) {
      if (edge.count === undefined) continue;
      const key = edgeKey(edge);
      const before = seen.counts.get(key);
      if (before !== undefined && edge.count > before) seen.movedAt.set(key, Date.now());
      seen.counts.set(key, edge.count);
    }
  }, [edges]);
  useLive(may("runs:read") ? "system.run.*.created" : "", {
    onFrame({ data }) {
      const { eventName, functionId } = data as { eventName: string; functionId: string };
      const [from, to] = [
        { kind: "event", name: eventName },
        { kind: "function", name: functionId },
      ] as const;
      const key = edgeKey({ from, verb: "starts", to, count: undefined });
      // Events that a wildcard or an invocation stands for have no line of their own.
      if (!seen.keys.has(key)) return;
      seen.starts.set(key, (seen.starts.get(key) ?? 0) + 1);
      seen.movedAt.set(key, Date.now());
    },
  });
  return {
    moves: (edge) => now - (seen.movedAt.get(edgeKey(edge)) ?? Number.NEGATIVE_INFINITY) < movesMs,
    started: (edge) => seen.starts.get(edgeKey(edge)),
  };
}
