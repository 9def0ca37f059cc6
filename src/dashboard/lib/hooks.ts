import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Listener, live } from "./live.ts";
import { ReadPace } from "./read-pace.ts";
import { isAtHome } from "./session.ts";

export interface Loaded<Value> {
  value: Value | undefined;
  error: unknown;
  isLoading: boolean;
  reload(): void;
}

/** Reads under way whose answer nothing on the page has yet. */
export const firstReads = signal(0);

/**
 * What `load` answers, read again when `deps` change or `reload` is called. While it is read again the value
 * before stays. Calls of `reload` that come close together are one read, and none takes the place of a read
 * under way: a slow one would never end while frames come.
 */
export function useLoaded<Value>(
  load: (signal: AbortSignal) => Promise<Value>,
  deps: readonly unknown[],
): Loaded<Value> {
  const [state, setState] = useState<{ value?: Value; error?: unknown; isLoading: boolean }>({
    isLoading: true,
  });
  const turn = useRef({
    ...{ over: new AbortController(), isBusy: false, isAskedAgain: false },
    ...{ pace: new ReadPace(), timer: undefined as Timer | undefined },
  });

  const begin = (isAskedByFrame = false) => {
    const { current } = turn;
    clearTimeout(current.timer);
    current.timer = undefined;
    current.over.abort();
    const over = new AbortController();
    Object.assign(current, { over, isBusy: true, isAskedAgain: false });
    if (isAskedByFrame) current.pace.began(performance.now());
    setState(({ value }) => ({ ...(value !== undefined && { value }), isLoading: true }));
    const settle = (found: { value: Value } | { error: unknown }) => {
      if (over.signal.aborted) return;
      current.isBusy = false;
      if (isAskedByFrame) current.pace.ended(performance.now());
      setState(({ value }) => ({ ...(value !== undefined && { value }), ...found, isLoading: false }));
      if (current.isAskedAgain) reload();
    };
    load(over.signal).then(
      (value) => settle({ value }),
      (error) => settle({ error }),
    );
  };
  useEffect(() => {
    begin();
    return () => {
      clearTimeout(turn.current.timer);
      turn.current.over.abort();
    };
  }, deps);

  const reload = () => {
    const { current } = turn;
    if (current.timer !== undefined) return;
    if (current.isBusy) {
      current.isAskedAgain = true;
      return;
    }
    current.timer = setTimeout(() => latest.current(true), current.pace.waitFrom(performance.now()));
  };
  const latest = useRef(begin);
  latest.current = begin;
  const isFirst = state.isLoading && state.value === undefined;
  useEffect(() => {
    if (!isFirst) return;
    firstReads.value++;
    return () => {
      firstReads.value--;
    };
  }, [isFirst]);
  return { value: state.value, error: state.error, isLoading: state.isLoading, reload };
}

export interface LoadedPages<Row> extends Loaded<readonly Row[]> {
  hasMore: boolean;
  showMore(): void;
}

/** Pages that follow each other by cursor, as one list; it is read again up to where it was shown. */
export function usePages<Row>(
  load: (cursor: string, signal: AbortSignal) => Promise<{ rows: readonly Row[]; next: string | undefined }>,
  deps: readonly unknown[],
): LoadedPages<Row> {
  const [shown, setShown] = useState({ key: "", pages: 1 });
  const key = JSON.stringify(deps);
  const pages = shown.key === key ? shown.pages : 1;
  const { value, ...read } = useLoaded(
    async (signal) => {
      const rows: Row[] = [];
      let cursor: string | undefined = "";
      for (let page = 0; page < pages && cursor !== undefined; page++) {
        const found: { rows: readonly Row[]; next: string | undefined } = await load(cursor, signal);
        rows.push(...found.rows);
        cursor = found.next || undefined;
      }
      return { rows, hasMore: cursor !== undefined };
    },
    [key, pages],
  );
  return {
    ...{ ...read, value: value?.rows, hasMore: value?.hasMore ?? false },
    showMore: () => setShown({ key, pages: pages + 1 }),
  };
}

type Timer = ReturnType<typeof setTimeout>;

/** Listens while the component is shown; an empty pattern listens to nothing. */
export function useLive(
  pattern: string,
  handlers: Pick<Listener, "onFrame" | "onBack" | "onRefused">,
  options?: Listener["options"],
): void {
  const latest = useRef(handlers);
  latest.current = handlers;
  const key = JSON.stringify(options);
  useEffect(() => {
    if (pattern === "") return;
    return live.listen({
      pattern,
      ...(options && { options }),
      onFrame: (frame) => latest.current.onFrame(frame),
      onBack: () => latest.current.onBack?.(),
      onRefused: (message) => latest.current.onRefused?.(message),
    });
  }, [pattern, key]);
}

/**
 * Reads again when the API changed a list, of the environment or its org, or at home of the platform. Who may
 * not read the list is told nothing: it says an empty one.
 */
export function useChanged(list: string, reload: () => void): void {
  const pattern = `system.${isAtHome() ? "platform" : "changed"}.${list}`;
  useLive(list === "" ? "" : pattern, { onFrame: reload, onBack: reload });
}

/** Draws again every `everyMs` while `isOn`. */
export function useTick(everyMs: number, isOn: boolean): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isOn]);
  return isOn ? Math.max(now, Date.now()) : now;
}

/** Calls `act` every `everyMs`, which is never less than five seconds: the net under the frames. */
export function useNet(act: () => void, everyMs = 30_000): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    const timer = setInterval(
      () => document.visibilityState === "visible" && latest.current(),
      Math.max(5_000, everyMs),
    );
    return () => clearInterval(timer);
  }, [everyMs]);
}

/**
 * Keeps what `reload` reads as it is now: by the frames of a list that the API changes, by frames of a
 * pattern, after a lost connection, and by the net.
 */
export function useFollowed(
  reload: () => void,
  by: { list?: string; frames?: string; everyMs?: number } = {},
): void {
  const { list = "", frames = "", everyMs } = by;
  useChanged(list, reload);
  useLive(frames, { onFrame: reload, onBack: reload });
  useNet(reload, everyMs);
}

/** The width of the window is that of a phone. */
export function useNarrow(): boolean {
  const [query] = useState(() => matchMedia("(max-width: 720px)"));
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return isNarrow;
}
