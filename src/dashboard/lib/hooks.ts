import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { CallError, isMissing } from "./api.ts";
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

/** What a page shows although reading it again fails, or is not answered. */
interface OldRead {
  /** When it was read. */
  since: number;
  error: unknown;
  reload(): void;
}

export const oldReads = signal<readonly OldRead[]>([]);

/** Tells the shell while there is an error that what was read `since` is shown. */
export function useOld(since: number | undefined, error: unknown, reload: () => void): void {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    if (since === undefined || error === undefined) return;
    const own = { since, error, reload: () => latest.current() };
    oldReads.value = [...oldReads.value, own];
    return () => {
      oldReads.value = oldReads.value.filter((one) => one !== own);
    };
  }, [since, error]);
}

/** A read again that takes longer leaves what is shown old. */
const slowMs = 10_000;
const notAnswered = new CallError("The server has not answered yet.", { status: 0, code: "unavailable" });

/** Not a word about what is read: a later try may succeed. */
const isPassing = (error: unknown): boolean =>
  error instanceof CallError && (error.status === 0 || error.status === 429 || error.status >= 500);

/**
 * What `load` answers, read again when `deps` change or `reload` is called. While it is read again the value
 * before stays, and while that fails for a passing reason, too: the shell says since when it is old. Calls of
 * `reload` that come close together are one read, and none takes the place of a read under way: a slow one
 * would never end while frames come.
 */
export function useLoaded<Value>(
  load: (signal: AbortSignal) => Promise<Value>,
  deps: readonly unknown[],
): Loaded<Value> {
  const [state, setState] = useState<{
    value?: Value;
    error?: unknown;
    isLoading: boolean;
    /** When `value` was read; undefined while it is that of other deps. */
    readAt?: number;
  }>({ isLoading: true });
  const turn = useRef({
    ...{ over: new AbortController(), isBusy: false, isAskedAgain: false },
    ...{ pace: new ReadPace(), timer: undefined as Timer | undefined, slow: undefined as Timer | undefined },
  });

  const begin = (isOfNewDeps: boolean) => {
    const { current } = turn;
    clearTimeout(current.timer);
    clearTimeout(current.slow);
    current.timer = undefined;
    current.over.abort();
    const over = new AbortController();
    Object.assign(current, { over, isBusy: true, isAskedAgain: false });
    if (!isOfNewDeps) current.pace.began(performance.now());
    setState(({ value, ...of }) => ({
      ...(value !== undefined && { value }),
      ...(!isOfNewDeps && of),
      isLoading: true,
    }));
    current.slow = setTimeout(() => {
      setState((of) =>
        of.readAt === undefined || of.error !== undefined ? of : { ...of, error: notAnswered },
      );
    }, slowMs);
    const settle = (found: { value: Value; readAt: number } | { error: unknown }) => {
      if (over.signal.aborted) return;
      clearTimeout(current.slow);
      current.isBusy = false;
      if (!isOfNewDeps) current.pace.ended(performance.now());
      setState(({ error: _, ...of }) => ({ ...of, ...found, isLoading: false }));
      if (current.isAskedAgain) reload();
    };
    load(over.signal).then(
      (value) => settle({ value, readAt: Date.now() }),
      (error) => settle({ error }),
    );
  };
  useEffect(() => {
    begin(true);
    return () => {
      clearTimeout(turn.current.timer);
      clearTimeout(turn.current.slow);
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
    current.timer = setTimeout(() => latest.current(false), current.pace.waitFrom(performance.now()));
  };
  const latest = useRef(begin);
  latest.current = begin;
  // Of what is gone its page tells.
  useOld(state.readAt, isMissing(state.error) ? undefined : state.error, reload);
  const isFirst = state.isLoading && state.value === undefined;
  useEffect(() => {
    if (!isFirst) return;
    firstReads.value++;
    return () => {
      firstReads.value--;
    };
  }, [isFirst]);
  const { value, isLoading, readAt } = state;
  const error = readAt !== undefined && isPassing(state.error) ? undefined : state.error;
  return { value, error, isLoading, reload };
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
