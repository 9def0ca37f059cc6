import type { Clock } from "../kit/clock.ts";
import type { PostgresClient } from "./postgres-client.ts";
import { mayNotAsk, toPostgresTrouble } from "./postgres-errors.ts";
import { NotWritable, StoreError } from "./store.ts";
import { WriteProbe } from "./write-probe.ts";

/**
 * The temporary table that takes the room, and asynchronous commits. Such a commit waits neither for the disk
 * nor for a standby, also the one by which PostgreSQL drops the table when the session ends: while commits
 * hang, no session of ours may wait. The table lies in the database's tablespace, as other tables do,
 * whatever the role's setting for temporary ones. Texts of this length need no second table.
 */
const make = [
  "SET synchronous_commit = off",
  "SET temp_tablespaces = ''",
  "CREATE TEMPORARY TABLE IF NOT EXISTS svc_room (filler CHAR(400)) ON COMMIT DELETE ROWS",
];
/** 128 kB: 18 rows fill a page of 8 kB. */
const fill = "INSERT INTO pg_temp.svc_room SELECT '' FROM generate_series(1, 288)";
/** The commit of whatever has read the table empties it. */
const giveBack = "SELECT FROM pg_temp.svc_room LIMIT 0";
const renew = "TRUNCATE pg_temp.svc_room";
/**
 * No vacuum reaches a living session's temporary table, and while it exists PostgreSQL keeps its knowledge of
 * all transactions since the table was made or truncated: after two thousand million it takes no more writes.
 */
const renewedMs = 10 * 60_000;

/**
 * Finds out whether the disk has room, by a temporary table of one connection that PostgreSQL empties with
 * the commit that filled it. Its pages are in no log and on no standby, and the catalogs are written once a
 * connection: a table that is made and rolled back leaves dead rows in them, and 10 kB in the log. The
 * session of that connection awaits no commit afterwards.
 */
export class RoomTable {
  readonly client: PostgresClient;
  readonly #clock: Clock;
  #newAt: number | undefined;
  #isRefused = false;

  constructor(client: PostgresClient, clock: Clock) {
    this.client = client;
    this.#clock = clock;
  }

  /** Throws the server's refusal. A role that may make no temporary tables finds out nothing. */
  async fill(): Promise<void> {
    if (this.#isRefused) return;
    try {
      await this.#provide();
      await this.#ask(fill);
    } catch (error) {
      if (mayNotAsk(error)) {
        this.#isRefused = true;
        return;
      }
      // An insert that was undone leaves its pages in the file, and would keep free space from all others.
      if (this.#newAt !== undefined && this.client.usable())
        await this.#ask(giveBack).catch(() => this.client.destroy());
      throw error;
    }
  }

  async #provide(): Promise<void> {
    const now = this.#clock.elapsed();
    if (this.#newAt === undefined) for (const text of make) await this.#ask(text);
    else if (now - this.#newAt >= renewedMs) await this.#ask(renew);
    else return;
    this.#newAt = now;
  }

  async #ask(text: string): Promise<void> {
    await this.client.ask(text, [], false);
  }
}

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
