import type { Clock } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { claimKeys, type KeyClaims } from "../../../kit/key-claims.ts";
import type { Counter } from "../../../kit/metrics.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import { type SizedCache, sizedCache } from "../../../kit/ttl-cache.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { usedKeys } from "./answers.ts";
import { type EmitFlushInput, type EmittedRow, emitFlush } from "./flush.ts";
import type { EmitUnit, ReservedEvent } from "./prepare.ts";
import type { UsedEventKey } from "./rows.ts";
import type { EntityDraft } from "./rules.ts";
import { nameOfStream, type StreamMove } from "./stream-flush.ts";

/** Streams whose versions a node remembers, and the length of their names together. */
const rememberedMax = 50_000;
const rememberedCharsMax = 8_000_000;
/** After another node moved a stream under a flush of this one, its row is locked before reads this long. */
const contendedMs = 10_000;

/** What a node knows of a stream; version 0 and no type: there is none. */
interface StreamHead {
  type: string | undefined;
  version: number;
  isDeleted: boolean;
}

interface Remembered extends StreamHead {
  contendedUntil: number;
}

type EmitClaims = KeyClaims<ReservedEvent, UsedEventKey>;
type UsedKeys = ReadonlyMap<string, UsedEventKey> | undefined;
type Units = readonly (readonly ReservedEvent[])[];

/** How heads are looked up: from memory where known, read again, or read under the locks of their rows. */
type HeadsRead = "known" | "current" | "held";

export interface StreamHeadsDeps {
  clock: Pick<Clock, "elapsed">;
  watch: Pick<Watch, "metrics">;
}

/** The heads of streams as this node knows them. */
export function openStreamHeads({ clock, watch }: StreamHeadsDeps) {
  const appends = watch.metrics.counter({
    name: "svc_stream_appends_total",
    help: "Events appended to streams of entities, and calls refused because a stream had another version.",
    labels: ["outcome"],
  });
  const outcomes = {
    committed: appends("committed"),
    conflict: appends("conflict"),
  };
  const remembered = sizedCache<Remembered>({ entriesMax: rememberedMax, charsMax: rememberedCharsMax });
  return {
    /** Undefined for units that append to no stream. */
    of(units: readonly EmitUnit[]): AppendedStreams | undefined {
      const names = new Map<string, { environmentId: string; entityId: string }>();
      for (const { origin, drafts } of units)
        for (const { entity } of drafts) {
          if (!entity) continue;
          const place = { environmentId: origin.environmentId, entityId: entity.id };
          names.set(nameOfStream(place), place);
        }
      return names.size === 0 ? undefined : new AppendedStreams(names, { remembered, clock, outcomes });
    },
  };
}

/** What the flushes of a node share. */
interface HeadMemory extends Pick<StreamHeadsDeps, "clock"> {
  remembered: SizedCache<Remembered>;
  outcomes: { committed: Counter; conflict: Counter };
}

/** The streams that one flush appends to. */
class AppendedStreams {
  readonly #names: ReadonlyMap<string, { environmentId: string; entityId: string }>;
  readonly #remembered: SizedCache<Remembered>;
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #outcomes: HeadMemory["outcomes"];
  /** As they were when they were read. */
  #heads = new Map<string, StreamHead>();
  /** As the decided appends leave them. */
  #reached = new Map<string, StreamHead>();

  constructor(
    names: ReadonlyMap<string, { environmentId: string; entityId: string }>,
    { remembered, clock, outcomes }: HeadMemory,
  ) {
    this.#names = names;
    this.#remembered = remembered;
    this.#clock = clock;
    this.#outcomes = outcomes;
  }

  /** Another node appends to one of them too: a look without locks would be outdated again. */
  get isContended(): boolean {
    const now = this.#clock.elapsed();
    for (const name of this.#names.keys())
      if ((this.#remembered.get(name)?.contendedUntil ?? 0) > now) return true;
    return false;
  }

  /** Must come before each `decide`. `held` takes the session of the flush's own transaction. */
  async load(reader: Pick<Session, "all" | "seams">, how: HeadsRead): Promise<void> {
    this.#heads = new Map();
    const unknown: { environmentId: string; entityId: string }[] = [];
    for (const [name, place] of this.#names) {
      const known = how === "known" ? this.#remembered.get(name) : undefined;
      if (known && known.version > 0) this.#heads.set(name, known);
      else unknown.push(place);
    }
    if (unknown.length === 0) return;
    for (const row of await reader.all<StreamHeadRow>(headsQuery(reader, unknown, how === "held")))
      this.#heads.set(nameOfStream({ environmentId: row.environment_id, entityId: row.entity_id }), {
        type: row.entity_type,
        version: row.version,
        isDeleted: row.deleted_at !== null,
      });
  }

  /**
   * Decides whose keys are whose, and gives each append its version, in order of arrival. A unit is refused
   * whole when one of its streams is not where it expects. Later units are decided by what earlier ones
   * reached.
   */
  decide(units: Units, used: UsedKeys): EmitClaims {
    this.#reached = new Map();
    return claimKeys(units, used, (events) => this.#append(events));
  }

  /** Appends the events of one unit in their order: all of them, or none. */
  #append(events: readonly ReservedEvent[]): Fault | undefined {
    const reached = new Map<string, StreamHead>();
    for (const { environmentId, entity, at } of events) {
      if (!entity) continue;
      const name = nameOfStream({ environmentId, entityId: entity.id });
      const own = reached.get(name);
      const head = own ?? this.#reached.get(name) ?? this.#heads.get(name) ?? none;
      // What a unit expects of a stream is meant before its first event.
      const fault = refusalOf(entity, head, at, own ? null : entity.expected);
      if (fault) return fault;
      entity.version = head.version + 1;
      reached.set(name, { type: entity.type, version: entity.version, isDeleted: false });
    }
    for (const [name, head] of reached) this.#reached.set(name, head);
    return undefined;
  }

  /** How far the decided appends move each stream. */
  moves(): StreamMove[] {
    return Array.from(this.#reached, ([name, { type, version }]) => {
      const base = this.#heads.get(name)?.version ?? 0;
      return { ...this.#names.get(name)!, entityType: type!, base, count: version - base };
    });
  }

  /** The flush is committed: its versions are remembered, and what became of its appends is counted. */
  committed({ written, refused }: EmitClaims): void {
    let appended = 0;
    for (const { entity } of written) if (entity !== null) appended++;
    let lost = 0;
    for (const { kind } of refused.values()) if (kind === "aborted") lost++;
    if (appended > 0) this.#outcomes.committed.add(appended);
    if (lost > 0) this.#outcomes.conflict.add(lost);
    for (const [name, head] of this.#reached) {
      const contendedUntil = this.#remembered.get(name)?.contendedUntil ?? 0;
      this.#remembered.set(name, { ...head, contendedUntil }, name.length);
    }
  }

  /** The flush found a stream elsewhere. */
  wereStale(): void {
    const contendedUntil = this.#clock.elapsed() + contendedMs;
    for (const name of this.#reached.keys())
      this.#remembered.set(name, { ...none, contendedUntil }, name.length);
  }
}

const none: StreamHead = { type: undefined, version: 0, isDeleted: false };

/** Why the append does not fit the stream. Existing clients look for the words `version` and `conflict`. */
function refusalOf(
  { id, type }: EntityDraft,
  head: StreamHead,
  at: string,
  expected: number | null,
): Fault | undefined {
  const shown = id.slice(0, 100);
  if (head.isDeleted)
    return new Fault("failed_precondition", `stream ${shown} is deleted and takes no more events`, {
      field: `${at}entityId`,
    });
  if (head.type !== undefined && head.type !== type)
    return invalid(`${at}entityType`, `stream ${shown} is of type "${head.type}"`);
  if (expected === null || expected === head.version) return undefined;
  const where = at === "" ? "" : `${at.slice(0, -1)}: stream ${shown}: `;
  return new Fault("aborted", `${where}version conflict: expected ${expected}, got ${head.version}`, {
    field: `${at}expectedVersion`,
  });
}

type StreamHeadRow = RowOf<"streams", "environment_id, entity_id, entity_type, version, deleted_at">;

/** Rows are locked in the order of their keys. */
const headsQuery = (
  { seams }: Pick<Store, "seams">,
  places: readonly { environmentId: string; entityId: string }[],
  hold: boolean,
): Sql => sql`SELECT s.environment_id, s.entity_id, s.entity_type, s.version, s.deleted_at
  FROM ${seams.rowsFrom("i", {
    ...columnsOf(places, { text: "environmentId entityId" }),
  })} JOIN streams s ON s.environment_id = i.environment_id AND s.entity_id = i.entity_id
  ${hold ? sql`ORDER BY s.environment_id, s.entity_id ${seams.holdRow}` : sql.empty}`;

/** A flush with appends to streams. */
export interface AppendFlush {
  streams: AppendedStreams;
  /** The events of each unit. */
  ofUnit: readonly ReservedEvent[][];
  /** The stored uses of keys, once a flush has lost one. */
  used: ReadonlyMap<string, UsedEventKey> | undefined;
  input: Pick<EmitFlushInput, "now" | "definitions" | "metered">;
}

/**
 * Decides the appends by the versions of their streams, and writes those that stand. A refusal is decided by
 * current versions, and repeats of a key are none. Streams that other nodes append to are locked before they
 * are read.
 */
export async function writeAppends(
  store: Store,
  { streams, ofUnit, used, input }: AppendFlush,
): Promise<{ claims: KeyClaims<ReservedEvent, UsedEventKey>; logged: EmittedRow[] }> {
  const decide = async (reader: Pick<Session, "all" | "seams">, how: HeadsRead) => {
    await streams.load(reader, how);
    const decided = streams.decide(ofUnit, used);
    if (decided.refused.size === 0) return decided;
    if (how === "known") await streams.load(reader, "current");
    return streams.decide(ofUnit, await usedKeys(reader, ofUnit.flat()));
  };
  const inputOf = ({ written: events, bound }: KeyClaims<ReservedEvent, UsedEventKey>): EmitFlushInput => ({
    ...{ ...input, events, bound },
    streams: streams.moves(),
  });
  const isLocked = store.engine === "postgres" && streams.isContended;
  const done = isLocked
    ? await store.write(async (session) => {
        const decided = await decide(session, "held");
        const text = decided.written.length > 0 && emitFlush.postgres(inputOf(decided), session.seams);
        return { claims: decided, logged: text ? await session.all<EmittedRow>(text) : [] };
      })
    : await decide(store, "known").then(async (decided) => ({
        claims: decided,
        logged: decided.written.length > 0 ? await store.flush(emitFlush, inputOf(decided)) : [],
      }));
  streams.committed(done.claims);
  return done;
}
