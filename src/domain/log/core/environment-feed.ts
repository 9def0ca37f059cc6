import { Fault } from "../../../kit/fault.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import type { FeedReader, FeedsDeps, LogEntry, LogHint } from "./feed-reader.ts";
import type { LogPosition } from "./rows.ts";

/** The open feeds of a node, by environment. A feed that is not in it is closed. */
export type OpenFeeds<Event extends LogEntry> = Map<string, EnvironmentFeed<Event>>;

/** Events read at first: no more than memory has room for when each is as large as a request. */
const sliceFirst = 32;

/**
 * The feed of one environment: knows how far its readers are, and reads on when it learns of a higher head.
 */
export class EnvironmentFeed<Event extends LogEntry> {
  readonly #environmentId: string;
  readonly #deps: Pick<FeedsDeps<Event>, "reads" | "log">;
  readonly #open: OpenFeeds<Event>;
  readonly #unlisten: () => void;
  readonly #readers = new Set<FeedReader<Event>>();
  /** Readers that are still catching up. */
  #joining = 0;
  /** Undefined until the head was read for the first time. */
  #position: number | undefined;
  /** The highest head that a commit, a hint or the store has named. */
  #head = 0;
  #isReading = false;
  readonly #slices = new ReadAheadSize(sliceFirst);

  /** Listens at once, before `start` looks at the head, so that no commit falls in between. */
  constructor(environmentId: string, deps: FeedsDeps<Event>, open: OpenFeeds<Event>) {
    this.#environmentId = environmentId;
    this.#deps = deps;
    this.#open = open;
    this.#unlisten = deps.listen(environmentId, (hint) => this.applyHint(hint));
  }

  get isOpen(): boolean {
    return this.#open.get(this.#environmentId) === this;
  }

  /** Readers that have caught up have every event up to this position. */
  get position(): number {
    return this.#position ?? 0;
  }

  async start(): Promise<void> {
    try {
      const { position } = await this.#readHead();
      this.#position = position;
      this.#head = Math.max(position, this.#head);
    } catch (error) {
      this.#unlisten();
      throw error;
    }
    // In the turn in which the head was read: a commit of this node that follows finds the feed.
    this.#open.set(this.#environmentId, this);
    if (this.#head > this.#position) void this.#readOn();
  }

  /** Joins at the feed's own position. */
  join(reader: FeedReader<Event>): void {
    this.#readers.add(reader);
  }

  /** Reads from `after` up to the feed's own position, which may move meanwhile, and joins there. */
  async catchUpAndJoin(reader: FeedReader<Event>, after: number): Promise<void> {
    this.#joining++;
    try {
      const { position, retention_floor: floor } = await this.#readHead();
      if (after > position)
        throw new Fault("invalid_argument", `position ${after} is above the end of the log, ${position}`);
      if (after < floor - 1) throw expired(floor);
      for (let reached = after; reached < this.position; ) reached = await this.#catchUp(reader, reached);
      // No await separates the last look at the position from this: no event is skipped or repeated.
      this.#readers.add(reader);
    } finally {
      this.#joining--;
      this.#closeIfIdle();
    }
  }

  leave(reader: FeedReader<Event>): void {
    this.#readers.delete(reader);
    this.#closeIfIdle();
  }

  /** Learns of a head, and perhaps of the events before it. */
  applyHint({ head, events }: LogHint<Event>): void {
    this.#head = Math.max(this.#head, head);
    if (this.#position === undefined || this.#head <= this.#position) return;
    const first = events?.[0];
    // A running read is about to deliver these events.
    if (first && !this.#isReading && first.position <= this.#position + 1) {
      const from = this.#position;
      this.#deliver(
        events.filter((event) => event.position > from),
        head,
      );
    }
    if (this.#head > this.#position) void this.#readOn();
  }

  /** The log is deleted. */
  end(): void {
    this.#close();
    for (const reader of this.#readers) reader.onEnd?.();
  }

  /** Answers how far the reader is now. */
  async #catchUp(reader: FeedReader<Event>, reached: number): Promise<number> {
    const target = this.position;
    const { events, isLast } = await this.#readSlice(reached, target);
    // Asked after the read: the floor is raised before the first event expires, so what was read is whole.
    const { retention_floor: floor } = await this.#readHead();
    if (reached < floor - 1) throw expired(floor);
    if (events.length > 0) reader.onEvents(events);
    return isLast ? target : events.at(-1)!.position;
  }

  async #readSlice(after: number, target?: number): Promise<{ events: Event[]; isLast: boolean }> {
    const { limit } = this.#slices;
    const events = await this.#deps.reads.after(this.#environmentId, after, limit, target);
    let chars = 0;
    for (const { data } of events) chars += data.length;
    this.#slices.note(events.length, chars);
    return { events, isLast: events.length < limit };
  }

  async #readHead(): Promise<LogPosition> {
    const [head] = await this.#deps.reads.heads([this.#environmentId]);
    if (!head) throw new Fault("not_found", `environment ${this.#environmentId} not found`);
    return head;
  }

  /** Reads up to the highest known head, in slices. Positions that have expired are passed over. */
  async #readOn(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    const environmentId = this.#environmentId;
    try {
      while (this.#head > this.position && this.isOpen) {
        const head = this.#head;
        const { events, isLast } = await this.#readSlice(this.position);
        const last = events.at(-1)?.position ?? 0;
        this.#deliver(events, isLast ? Math.max(head, last) : last);
      }
    } catch (error) {
      this.#deps.log.debug("feed.read_failed", { environmentId, error });
    } finally {
      this.#isReading = false;
    }
  }

  #deliver(events: readonly Event[], position: number): void {
    this.#position = position;
    if (events.length === 0) return;
    for (const reader of [...this.#readers]) {
      try {
        reader.onEvents(events);
      } catch (error) {
        this.#deps.log.error("feed.reader_failed", { environmentId: this.#environmentId, error });
      }
    }
  }

  #closeIfIdle(): void {
    if (this.#readers.size === 0 && this.#joining === 0) this.#close();
  }

  #close(): void {
    if (this.isOpen) this.#open.delete(this.#environmentId);
    this.#unlisten();
  }
}

const expired = (floor: number): Fault =>
  new Fault("failed_precondition", `positions below ${floor} have expired`);
