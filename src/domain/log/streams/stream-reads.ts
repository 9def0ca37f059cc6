import { boundedPageOf, looksMax } from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { pageSize, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import { sizedCache } from "../../../kit/ttl-cache.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { EventRun } from "../../engine/runs/list-runs.ts";
import type { Runs } from "../../engine/runs/service.ts";
import * as rows from "./rows.ts";
import {
  type Direction,
  historyLimitDefault,
  historyLimitMax,
  isEntityId,
  readCharsMax,
  readEventsMax,
} from "./rules.ts";

export type StreamInfo = rows.StreamRow;
export type StreamEvent = rows.StreamEventRow;

export interface StreamsQuery {
  entityType?: string;
  search?: string;
  includeDeleted: boolean;
  limit: number | undefined;
  offset: number;
  cursor?: string;
}

export interface StreamList {
  streams: StreamInfo[];
  nextCursor: string | undefined;
  /** Counted up to `countCap`, and among as many streams. */
  totalCount: number;
  /** There may be more than were counted. */
  isTotalCut: boolean;
  /** How many streams were looked at, when that ended the page; else 0. */
  scanned: number;
}

export interface StreamPage {
  events: StreamEvent[];
  /** Events of the whole stream. */
  totalCount: number;
  /** The first version of the next page; 0 after the last event. */
  nextVersion: number;
}

export interface HistoryPage {
  info: StreamInfo;
  entries: { event: StreamEvent; runs: EventRun[] }[];
  /** The first version of the next page; 0 on the last one. */
  nextVersion: number;
}

export interface Snapshot extends rows.SnapshotRow {
  entity_type: string;
}

export interface ReadRange {
  entityId: string;
  /** Inclusive; 0 is the first in this direction. */
  fromVersion: number;
  direction: Direction;
}

export interface HistoryRange extends ReadRange {
  limit: number | undefined;
  since: Instant | undefined;
  until: Instant | undefined;
}

/** The last version that a page of times looks at. */
const lastLooked = (direction: Direction, from: number): number =>
  direction === "forward" ? from + looksMax - 1 : Math.max(1, from - looksMax + 1);

/** The version after the last one looked at; 0 where that was the stream's last. */
function behindLook(direction: Direction, to: number | undefined, version: number): number {
  if (to === undefined) return 0;
  if (direction === "backward") return to - 1;
  return to < version ? to + 1 : 0;
}

export interface StreamReadsDeps extends Basics<"store" | "log"> {
  runs: Pick<Runs, "get" | "ofEvents">;
}

/** Events of the first slice of a read; later ones follow the size of what was read. */
const sliceFirst = 100;
/** Links of runs with streams that a node knows to be written. */
const linksRememberedMax = 10_000;
const runStreamsMax = 1_000;

/** Existing clients compare the whole text. */
export const streamNotFound = (): Fault => new Fault("not_found", "stream not found");

export function openStreamReads({ store, log, runs }: StreamReadsDeps) {
  const linked = sizedCache<true>({ entriesMax: linksRememberedMax, charsMax: linksRememberedMax * 400 });

  /** Undefined for a stream that does not exist. */
  async function visible(environmentId: string, entityId: string): Promise<StreamInfo | undefined> {
    const stream = isEntityId(entityId) ? await rows.getStream(store, environmentId, entityId) : undefined;
    if (stream?.deleted_at != null) throw streamNotFound();
    return stream;
  }

  async function required(environmentId: string, entityId: string): Promise<StreamInfo> {
    const stream = await visible(environmentId, entityId);
    if (!stream) throw streamNotFound();
    return stream;
  }

  /** A read must not fail for this: the link is for those who look at the run later. */
  async function linkRead(environmentId: string, entityId: string, runId: string): Promise<void> {
    const name = `${runId}\n${entityId}`;
    if (linked.get(name)) return;
    try {
      await store.write((session) => rows.linkRead(session, { environmentId, entityId, runId }));
      linked.set(name, true, name.length);
    } catch (error) {
      log.debug("streams.link_failed", { environmentId, runId, error });
    }
  }

  return {
    async list(
      environmentId: string,
      { limit, offset, cursor, ...input }: StreamsQuery,
    ): Promise<StreamList> {
      if (cursor !== undefined && offset > 0) throw invalid("cursor", "cannot be combined with offset");
      const after = cursor === undefined ? undefined : readNameCursor("cursor", cursor);
      const filter = { environmentId, ...input };
      const size = pageSize(limit);
      const [found, { count, isCut }] = await Promise.all([
        rows.listStreams(store, filter, { after, limit: size + 1, offset }),
        rows.countStreams(store, filter),
      ]);
      const { items, ...page } = boundedPageOf(found, size, (last) => writeNameCursor(last.entity_id));
      return { streams: items, ...page, totalCount: count, isTotalCut: isCut };
    },

    /** `not_found`, `stream not found`. */
    info: required,

    /**
     * Events by version; none of a stream that does not exist, `not_found` for a deleted one. `limit` 0 asks
     * for all: `failed_precondition` beyond `readEventsMax` events and `readCharsMax` characters, never a
     * shorter answer. `runId` is the run that reads.
     */
    async read(
      environmentId: string,
      { limit, ...range }: ReadRange & { limit: number },
      runId: string | undefined,
    ): Promise<StreamPage> {
      if (limit > readEventsMax) throw invalid("limit", `at most ${readEventsMax}`);
      const stream = await visible(environmentId, range.entityId);
      if (!stream) return { events: [], totalCount: 0, nextVersion: 0 };
      const { version } = stream;
      const fromVersion = firstOf(range, version);
      const left = range.direction === "forward" ? version - fromVersion + 1 : fromVersion;
      if (limit === 0 && left > readEventsMax) throw tooMany(fromVersion, left);
      const found = await eventsOf(store, environmentId, { ...range, fromVersion }, limit || readEventsMax);
      if (runId !== undefined) await linkRead(environmentId, range.entityId, runId);
      const totalCount = Math.max(version, found.at(-1)?.entity_version ?? 0);
      return { events: found, totalCount, nextVersion: nextOf(range.direction, found.at(-1), totalCount) };
    },

    /** Events with the runs that they started. */
    async history(
      environmentId: string,
      { limit, since, until, ...range }: HistoryRange,
    ): Promise<HistoryPage> {
      const info = await required(environmentId, range.entityId);
      const most = Math.min(pageSize(limit, historyLimitDefault), historyLimitMax);
      const from = firstOf(range, info.version);
      // The index of versions has no times.
      const to = since === undefined && until === undefined ? undefined : lastLooked(range.direction, from);
      const found = await rows.eventsOf(store, { ...range, environmentId, from, to, since, until }, most + 1);
      const page = found.slice(0, most);
      const ids = page.map(({ id }) => id);
      const started = await runs.ofEvents(environmentId, ids);
      return {
        info,
        entries: page.map((event) => ({ event, runs: started.get(event.id) ?? [] })),
        nextVersion: found[most]?.entity_version ?? behindLook(range.direction, to, info.version),
      };
    },

    /** The latest at or before the version, 0 for any; `not_found` when there is none. */
    async snapshot(environmentId: string, entityId: string, beforeVersion: number): Promise<Snapshot> {
      const stream = await required(environmentId, entityId);
      const found = await rows.latestSnapshot(
        store,
        environmentId,
        entityId,
        beforeVersion === 0 ? stream.version : beforeVersion,
      );
      if (!found) throw new Fault("not_found", "snapshot not found");
      return { ...found, entity_type: stream.entity_type };
    },

    /** Ids of the streams that a run appended to or read while live; `not_found` for an unknown run. */
    async ofRun(environmentId: string, runId: string): Promise<string[]> {
      await runs.get(environmentId, runId);
      const found = await rows.streamsOfRun(store, environmentId, runId, runStreamsMax);
      return found.map(({ entity_id }) => entity_id);
    },
  };
}

/** Reads on slice by slice until `wanted` events or the end of the stream; refuses too many characters. */
async function eventsOf(
  store: Store,
  environmentId: string,
  { entityId, fromVersion, direction }: ReadRange,
  wanted: number,
): Promise<StreamEvent[]> {
  const found: StreamEvent[] = [];
  const size = new ReadAheadSize(sliceFirst);
  const step = direction === "forward" ? 1 : -1;
  let chars = 0;
  for (let from = fromVersion; found.length < wanted; from = found.at(-1)!.entity_version + step) {
    const limit = Math.min(size.limit, wanted - found.length);
    const slice = await rows.eventsOf(store, { environmentId, entityId, direction, from }, limit);
    const before = chars;
    for (const event of slice) {
      chars += event.data.length + (event.metadata?.length ?? 0);
      if (chars > readCharsMax) throw tooLarge(fromVersion, found.length);
      found.push(event);
    }
    size.note(slice.length, chars - before);
    if (slice.length < limit) break;
  }
  return found;
}

/** The first version that a range means. */
const firstOf = ({ fromVersion, direction }: ReadRange, head: number): number => {
  if (direction === "forward") return Math.max(1, fromVersion);
  return fromVersion === 0 ? head : Math.min(fromVersion, head);
};

function nextOf(direction: Direction, last: StreamEvent | undefined, head: number): number {
  if (!last) return 0;
  if (direction === "backward") return last.entity_version - 1;
  return last.entity_version < head ? last.entity_version + 1 : 0;
}

const tooMany = (from: number, count: number): Fault =>
  new Fault(
    "failed_precondition",
    `limit: ${count} events from version ${from} on are more than one answer has: read pages of at most ${readEventsMax}`,
    { field: "limit" },
  );

const tooLarge = (from: number, fitting: number): Fault =>
  new Fault(
    "failed_precondition",
    `limit: the events from version ${from} on are larger than ${readCharsMax / 1024 / 1024} MiB: read with a limit of at most ${fitting}`,
    { field: "limit" },
  );
