import type { Clock } from "../kit/clock.ts";
import type { PostgresClient } from "./postgres-client.ts";
import { mayNotAsk, toPostgresTrouble } from "./postgres-errors.ts";
import { RoomTable } from "./postgres-room.ts";
import { NotWritable, StoreError } from "./store.ts";
import { WriteProbe } from "./write-probe.ts";

/**
 * Waits for the disk, and for the standby where commits do, and leaves no row. It says itself how it waits,
 * since for the room the same session does not.
 */
const smallCommit = `SELECT current_setting('transaction_read_only') AS read_only,
  set_config('synchronous_commit', $1, true), pg_logical_emit_message(true, 'svc', '')`;

/** 128 kB of pages that are given back at once; unlogged, since the log shares the disk. */
const takeRoom = (suffix: string) => [
  "BEGIN",
  `CREATE UNLOGGED TABLE svc_room_${suffix} (filler TEXT)`,
  `INSERT INTO svc_room_${suffix} SELECT repeat('x', 1900) FROM generate_series(1, 64)`,
  "ROLLBACK",
];

export interface PostgresWritableOptions {
  clock: Clock;
  /** A connection of its own: those of the pools may all hang in commits. */
  connect: () => Promise<PostgresClient>;
  suffix: string;
}

export interface PostgresWritable extends Pick<WriteProbe, "ping" | "note"> {
  close(): void;
}

/** Whether PostgreSQL can be written: its server may be up, and a standby, frozen or full. */
export function postgresWritable({ clock, connect, suffix }: PostgresWritableOptions): PostgresWritable {
  let client: PostgresClient | undefined;
  let room: RoomTable | undefined;
  let isClosed = false;

  const connected = async (): Promise<PostgresClient> => {
    if (client?.usable()) return client;
    client = await connect();
    if (isClosed) client.destroy();
    return client;
  };

  const probe = new WriteProbe({
    clock,
    async commit(onAsked) {
      const asked = await connected();
      onAsked();
      try {
        const [row] = await asked.askRaw(smallCommit, [asked.synchronousCommit]);
        if (String(row?.[0]) === "on")
          throw new NotWritable("the database only reads", "transaction_read_only");
      } catch (error) {
        // A server without the function answers, which is all that can be known of it.
        if (!mayNotAsk(error)) throw toPostgresTrouble(error);
      }
    },
    giveUp() {
      // The server would wait on for a client that has left, so it gets a cancel.
      client?.cancel();
      const given = client;
      clock.after(100, () => given?.destroy());
      client = undefined;
    },
    async tryRoom() {
      const asked = await connected();
      if (room?.client !== asked) room = new RoomTable(asked, clock);
      await room.fill().catch((error: unknown) => {
        throw toPostgresTrouble(error);
      });
    },
    async takeRoom() {
      const asked = await connected();
      try {
        for (const text of takeRoom(suffix)) await asked.ask(text, [], false);
      } catch (error) {
        await asked.ask("ROLLBACK", [], false).catch(() => asked.destroy());
        throw toPostgresTrouble(error);
      }
    },
  });
  return {
    async ping() {
      if (isClosed) throw new StoreError("unavailable", "the store is closed");
      await probe.ping();
    },
    note: (error) => probe.note(error),
    close() {
      isClosed = true;
      client?.destroy();
    },
  };
}
