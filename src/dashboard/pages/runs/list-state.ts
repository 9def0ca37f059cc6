import { signal } from "@preact/signals";
import { instantOf } from "../../lib/format.ts";
import type { LiveFrame } from "../../lib/live.ts";
import { listRuns, type RunFilters, type RunPage, type RunView, runOf } from "../../lib/runs.ts";

const pageRows = 200;
/** Pages without a run that are read one after the other before the reader is asked. */
const emptyPagesMax = 10;
/** Rows that stay however far the reader is from them. Older ones are read again when scrolled to. */
const keptRows = 2_000;
/** Frames are gathered for this long and drawn together. */
const gatherMs = 100;
/** Runs of which another frame came than the first one, which may yet come. */
const earlyMax = 2_000;
/** The least time between two reads of the newest rows that frames ask for. */
const headPauseMs = 2_000;

/** Newest first, as the server lists them. */
const isBefore = (one: RunView, other: RunView) =>
  one.createdAt > other.createdAt || (one.createdAt === other.createdAt && one.id > other.id);

/** The rows of the list, kept together from pages, from frames and from reads of the newest. */
export class RunList {
  readonly rows = signal<readonly RunView[]>([]);
  readonly total = signal(0);
  readonly isTotalCut = signal(false);
  readonly hasMore = signal(false);
  /** So many runs were looked at in vain that the reader is asked whether to go on. */
  readonly isPaused = signal(false);
  readonly error = signal<unknown>(undefined);
  readonly readAt = signal<number | undefined>(undefined);
  /** False until the first page has come. */
  readonly isRead = signal(false);

  readonly #filters: RunFilters;
  readonly #over = new AbortController();
  #byId = new Map<string, RunView>();
  #cursor: string | undefined;
  #isReading = false;
  #gathered: LiveFrame[] = [];
  #gathering: ReturnType<typeof setTimeout> | undefined;
  #head: ReturnType<typeof setTimeout> | undefined;
  #headAt = -headPauseMs;
  /** Rows behind it were given up: the next page begins there, as no cursor does. */
  #cutAt: string | undefined;
  #lastInSight = 0;
  /** The newest row, if any, when the connection was there: what came meanwhile is before it. */
  #known: { newest: RunView | undefined } | undefined;
  /** End of the counted page, unless nothing comes after it. Later rows are in the total, reported or not. */
  #countedFrom: RunView | undefined;
  #isHeadRead = false;
  #isHeadOld = false;
  #pagesAsked = 0;
  /** What came while pages are on their way, which may be from before it. */
  #sinceAsked: LiveFrame[] = [];
  readonly #early = new Map<string, RunView>();

  constructor(filters: RunFilters) {
    this.#filters = filters;
    void this.more();
  }

  close(): void {
    this.#over.abort();
    clearTimeout(this.#gathering);
    clearTimeout(this.#head);
  }

  /** Reads the next page; nothing while one is read or none is left. */
  async more(): Promise<void> {
    if (this.#isReading || (this.isRead.value && !this.hasMore.value)) return;
    this.#isReading = true;
    this.#pagesAsked++;
    this.isPaused.value = false;
    try {
      for (let isFound = false, pages = 0; !isFound && !this.isPaused.value; pages++) {
        const isFirst = this.#cursor === undefined && this.#cutAt === undefined;
        const [from, cutAt] = [this.#cursor, this.#cutAt];
        const page = await this.#read({ limit: pageRows, ...(from !== undefined && { cursor: from }) });
        // A page from before the cut is not the one behind what is left.
        if (from !== this.#cursor || cutAt !== this.#cutAt) break;
        this.#cursor = page.nextCursor || undefined;
        this.hasMore.value = this.#cursor !== undefined;
        this.#keep(page);
        if (isFirst) this.#count(page);
        isFound = page.runs.length > 0 || this.#cursor === undefined;
        this.isPaused.value = !isFound && pages + 1 >= emptyPagesMax;
      }
      this.isRead.value = true;
      this.readAt.value = Date.now();
      this.error.value = undefined;
    } catch (error) {
      if (!this.#over.signal.aborted) this.error.value = error;
    } finally {
      this.#isReading = false;
      this.#settle();
    }
  }

  /** A page has come, or will not. */
  #settle(): void {
    this.#place(this.#sinceAsked);
    if (--this.#pagesAsked === 0) this.#sinceAsked = [];
    if (!this.#isHeadOld || this.#isHeadRead || !this.isRead.value || this.#over.signal.aborted) return;
    this.#isHeadOld = false;
    this.refreshHead();
  }

  #read(page: { limit: number; cursor?: string }, filters = this.#behind()): Promise<RunPage> {
    return listRuns(filters, page, this.#over.signal);
  }

  #behind(): RunFilters {
    return this.#cutAt === undefined ? this.#filters : { ...this.#filters, until: this.#cutAt };
  }

  /** Tells which rows the reader has in sight: those and `keptRows` stay. */
  seen(last: number): void {
    this.#lastInSight = last;
  }

  /** Gives up the oldest rows of a list that grows above a reader who stays at its beginning. */
  #trim(): void {
    const kept = this.#lastInSight + keptRows;
    if (this.rows.value.length <= 2 * kept) return;
    const rows = this.rows.value.slice(0, kept);
    this.rows.value = rows;
    this.#byId = new Map(rows.map((row) => [row.id, row]));
    this.#cursor = undefined;
    this.#cutAt = new Date(rows.at(-1)!.createdAt).toISOString();
    this.hasMore.value = true;
  }

  #count({ runs, nextCursor, totalCount, totalCountCapped }: RunPage): void {
    this.#countedFrom = nextCursor === "" ? undefined : runs.at(-1);
    this.total.value = totalCount;
    this.isTotalCut.value = totalCountCapped;
  }

  #keep({ runs }: RunPage): void {
    for (const run of runs) this.#byId.set(run.id, run);
    const added = new Set(runs.map(({ id }) => id));
    const rows = this.rows.value.filter(({ id }) => !added.has(id));
    const last = rows.at(-1);
    const first = runs[0];
    // The next page stands behind all that is there; the newest page among it.
    if (!last || (first && isBefore(last, first))) this.rows.value = [...rows, ...runs];
    else this.rows.value = [...rows, ...runs].sort((one, other) => (isBefore(one, other) ? -1 : 1));
  }

  /** Frames come from now on, at first or again. */
  back(): void {
    this.#known ??= { newest: this.rows.value[0] };
    this.refreshHead();
  }

  /** Reads the newest page again, once in `headPauseMs` however often it is asked for. */
  refreshHead(): void {
    // What is asked for while a page is on its way is not in that page.
    if (this.#isHeadRead || (this.#isReading && !this.isRead.value)) this.#isHeadOld = true;
    if (!this.isRead.value) return void this.more();
    if (this.#head !== undefined) return;
    const wait = Math.max(0, this.#headAt + headPauseMs - performance.now());
    this.#head = setTimeout(() => void this.#readHead(), wait);
  }

  async #readHead(): Promise<void> {
    this.#headAt = performance.now();
    this.#isHeadRead = true;
    this.#pagesAsked++;
    try {
      this.#replaceHead(await this.#read({ limit: pageRows }, this.#filters));
      this.readAt.value = Date.now();
      this.error.value = undefined;
    } catch (error) {
      if (!this.#over.signal.aborted) this.error.value = error;
    }
    this.#isHeadRead = false;
    this.#head = undefined;
    this.#settle();
  }

  /** Rows as new as the page that are not in it any more do not match the filter any more. */
  #replaceHead(page: RunPage): void {
    const last = page.runs.at(-1);
    const found = new Set(page.runs.map(({ id }) => id));
    const isWhole = page.nextCursor === "";
    const known = this.#known;
    this.#known = undefined;
    // More runs came while there was no connection than the page has: the list goes on behind the page.
    const isApart =
      !isWhole &&
      last !== undefined &&
      known !== undefined &&
      (!known.newest || isBefore(last, known.newest));
    const goesOn = !isWhole && !isApart;
    const stays = (row: RunView) => found.has(row.id) || (goesOn && (!last || isBefore(last, row)));
    this.rows.value = this.rows.value.filter((row) => stays(row));
    this.#byId = new Map(this.rows.value.map((row) => [row.id, row]));
    this.#keep(page);
    this.#count(page);
    if (goesOn) return;
    this.#cursor = page.nextCursor || undefined;
    this.#cutAt = undefined;
    this.hasMore.value = isApart;
  }

  take(frame: LiveFrame): void {
    this.#gathered.push(frame);
    this.#gathering ??= setTimeout(() => {
      this.#gathering = undefined;
      this.#apply(this.#gathered.splice(0));
    }, gatherMs);
  }

  #apply(frames: readonly LiveFrame[]): void {
    if (this.#pagesAsked > 0) this.#sinceAsked.push(...frames);
    const isNews = this.#place(frames);
    // A run that is not in the list may match its filter now, and one that is may match it no more.
    const { statuses = [], until } = this.#filters;
    const isNarrow = isDecidedByServer(this.#filters) || statuses.length > 0;
    if (until === undefined && isNarrow && isNews) this.refreshHead();
  }

  /** Whether they tell of more than runs that were just created. */
  #place(frames: readonly LiveFrame[]): boolean {
    const created: RunView[] = [];
    let isMoved = false;
    let isUnknown = false;
    for (const frame of frames) {
      const next = fromFrame(frame);
      const known = this.#byId.get(next.id);
      if (known) {
        this.#byId.set(next.id, merged(known, next));
        isMoved = true;
      } else if (frame.topic.endsWith(".created") && this.#takes(next)) {
        const early = this.#early.get(next.id);
        this.#byId.set(next.id, early ? merged(next, early) : next);
        created.push(next);
      } else {
        isUnknown = true;
        this.#rememberEarly(next);
      }
    }
    if (isMoved || created.length > 0) {
      const rows = this.rows.value.map((row) => this.#byId.get(row.id) ?? row);
      const all = created.map(({ id }) => this.#byId.get(id)!).concat(rows);
      this.rows.value =
        created.length === 0 ? rows : all.sort((one, other) => (isBefore(one, other) ? -1 : 1));
      const counted = this.#countedFrom;
      this.total.value += counted ? created.filter((run) => isBefore(run, counted)).length : created.length;
      this.#trim();
    }
    return isMoved || isUnknown;
  }

  /** Frames come in any order: what became of a run may be told before that it was created. */
  #rememberEarly(next: RunView): void {
    const before = this.#early.get(next.id);
    this.#early.delete(next.id);
    this.#early.set(next.id, before ? merged(before, next) : next);
    if (this.#early.size > earlyMax) this.#early.delete(this.#early.keys().next().value!);
  }

  /** Whether the filter takes a run that was just created; the server says of the rest. */
  #takes(run: RunView): boolean {
    const { functionId, eventId, eventName, statuses = [], until } = this.#filters;
    if (!this.isRead.value || until !== undefined || isDecidedByServer(this.#filters)) return false;
    if (functionId !== undefined && functionId !== run.functionId) return false;
    if (eventId !== undefined && eventId !== run.eventId) return false;
    if (eventName !== undefined && eventName !== run.eventName) return false;
    return statuses.length === 0 || statuses.includes(run.status);
  }
}

/** Frames do not say enough. */
const isDecidedByServer = ({ search, errorGroup, errorText, where }: RunFilters): boolean =>
  (search ?? errorGroup ?? errorText ?? where) !== undefined;

function fromFrame({ data }: LiveFrame): RunView {
  const at = typeof data.timestamp === "string" ? data.timestamp : undefined;
  return runOf({ ...data, createdAt: at });
}

/** Frames of several nodes come in any order: one from before the end of a run moves it no more. */
function merged(known: RunView, next: RunView): RunView {
  // Of a frame this is when it happened.
  const { createdAt: at } = next;
  if (known.endedAt !== undefined && next.endedAt === undefined && at <= known.endedAt) return known;
  const { status, pauseReason, startedAt = known.startedAt, endedAt, error } = next;
  const attempt = next.attempt || known.attempt;
  return { ...known, status, pauseReason, attempt, startedAt, endedAt, error };
}

export const filtersOf = (query: URLSearchParams): RunFilters => {
  const text = (name: string) => query.get(name) || undefined;
  const since = sinceOf(text("since"));
  return {
    functionId: text("function"),
    eventId: text("event"),
    search: text("q"),
    errorGroup: text("error"),
    eventName: text("name"),
    errorText: text("says"),
    where: text("where"),
    statuses: (text("status") ?? "").split(",").filter((word) => word !== ""),
    ...(since !== undefined && { since }),
    ...(text("until") && { until: text("until") }),
  };
};

const spans: Record<string, number> = {
  "1m": 60_000,
  "15m": 900_000,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 604_800_000,
};

/** A span back from now, or an instant. */
function sinceOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const span = spans[text];
  if (span !== undefined) return new Date(Date.now() - span).toISOString();
  return instantOf(text) === undefined ? undefined : text;
}
