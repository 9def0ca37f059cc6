import { useEffect, useRef, useState } from "preact/hooks";
import { useLive } from "./hooks.ts";
import type { LiveFrame } from "./live.ts";

/** Deliveries are gathered for this long and drawn together. */
const gatherMs = 100;

export interface Tailing<Line> {
  /** Newest first. */
  lines: readonly Line[];
  isHeld: boolean;
  hold(isHeld: boolean): void;
  /** Why the server refuses the subscription; empty where it does not. */
  refused: string;
  clear(): void;
}

/** A log as it grows, after the newest `replay` matches. After a lost connection it continues in place. */
export function useTail<Line extends { id: string }>(
  pattern: string,
  asked: { filter?: string; replay: number; keptMax: number; lineOf: (frame: LiveFrame) => Line },
): Tailing<Line> {
  const { filter = "", replay, keptMax, lineOf } = asked;
  const [lines, setLines] = useState<readonly Line[]>([]);
  const [isHeld, setHeld] = useState(false);
  const [refused, setRefused] = useState("");
  const gathered = useRef<Line[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const seen = useRef(new Set<string>());

  useEffect(() => {
    gathered.current = [];
    seen.current = new Set();
    setLines([]);
    setRefused("");
  }, [pattern, filter, replay]);
  const show = () => {
    timer.current = undefined;
    const added = gathered.current.splice(0).reverse();
    setLines((before) => [...added, ...before].slice(0, keptMax));
  };
  useEffect(() => {
    if (!isHeld && gathered.current.length > 0) show();
    return () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, [isHeld]);
  useLive(
    pattern,
    {
      onFrame(frame) {
        const line = lineOf(frame);
        if (seen.current.has(line.id)) return;
        seen.current.add(line.id);
        if (seen.current.size > keptMax * 2) seen.current.delete(seen.current.values().next().value!);
        gathered.current.push(line);
        if (gathered.current.length > keptMax) gathered.current.shift();
        if (!isHeld) timer.current ??= setTimeout(show, gatherMs);
      },
      onRefused: setRefused,
    },
    { resumes: true, replay, ...(filter && { filter }) },
  );
  return { lines, isHeld, hold: setHeld, refused, clear: () => setLines([]) };
}
