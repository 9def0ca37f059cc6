import type { KeyClaims } from "../../../kit/key-claims.ts";
import type { Session, Store } from "../../../store/store.ts";
import { usedKeys } from "./answers.ts";
import { type EmitFlushInput, type EmittedRow, emitFlush } from "./flush.ts";
import type { ReservedEvent } from "./prepare.ts";
import type { UsedEventKey } from "./rows.ts";
import type { AppendedStreams, HeadsRead } from "./stream-appends.ts";

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
