import type { Clock } from "../kit/clock.ts";
import { type Connection, toLibsqlTrouble } from "./libsql-drivers.ts";
import { StoreError } from "./store.ts";

/** One caller's work inside the group. It answers at once, or by a promise that the whole writer awaits. */
export interface WriteUnit<T> {
  run(): T | Promise<T>;
  /** What it does follows from what it was given alone: run again, it does the same. */
  repeatable?: true;
  /** When the unit last issued a statement; the watchdog measures from there. */
  activeAt?(): number;
  /** The unit was given up: whatever it still tries must fail. */
  cut?(error: unknown): void;
}

export interface WriterOptions {
  clock: Clock;
  connection: Connection;
  /** Units that share one commit, at most. */
  unitsMax: number;
  /** After this long no further unit joins, so that the event loop is not held. */
  groupMs: number;
  /** A unit that issues nothing for this long is rolled back. */
  idleMs: number;
  /** Told why a unit failed, defects included. */
  onFailed: (trouble: unknown) => void;
}

interface QueuedWrite {
  unit: WriteUnit<unknown>;
  resolve: (value: unknown) => void;
  reject: (error: unknown) => void;
}

interface WriteOutcome {
  one: QueuedWrite;
  value: unknown;
  error: { cause: unknown } | undefined;
  /** It stands in line once more. */
  again: boolean;
}

const undoneByAnother = (cause: unknown) =>
  new StoreError("unavailable", "another write that shared the transaction made the database undo it", cause);

function rollBack(connection: Connection): void {
  try {
    connection.exec("ROLLBACK");
  } catch {
    // The next BEGIN says so, to its caller.
  }
}

/**
 * The one writer: units run in order of arrival and share a commit, each in a savepoint, so that a failed one
 * is undone alone. No outcome is known before the commit: even a refusal may rest on a neighbour's writes.
 */
export function writer(options: WriterOptions) {
  const { clock, connection, unitsMax, groupMs, idleMs } = options;
  let waiting: QueuedWrite[] = [];
  let working: Promise<void> | undefined;

  /** Commits a group from the front of `units`, which may grow meanwhile; answers how many it took. */
  const runGroup = async (units: QueuedWrite[]): Promise<number> => {
    const startedAt = clock.elapsed();
    const outcomes: WriteOutcome[] = [];
    let open = false;
    // How many outcomes stand in the open transaction.
    let kept = 0;
    const undone = (error: unknown) => {
      for (const outcome of outcomes) outcome.error ??= { cause: error };
      open = false;
      kept = 0;
    };
    /** One unit made SQLite undo all. Units before it are not to blame: if possible they rerun after it. */
    const undoneBy = (culprit: WriteOutcome) => {
      for (const outcome of outcomes) {
        if (outcome === culprit || outcome.error || outcome.again) continue;
        if (outcome.one.unit.repeatable) {
          outcome.again = true;
          units.push(outcome.one);
        } else outcome.error = { cause: undoneByAnother(culprit.error?.cause) };
      }
      open = false;
      kept = 0;
    };
    try {
      while (outcomes.length < Math.min(units.length, unitsMax)) {
        if (outcomes.length > 0 && clock.elapsed() - startedAt >= groupMs) break;
        const one = units[outcomes.length] as QueuedWrite;
        const outcome: WriteOutcome = { one, value: undefined, error: undefined, again: false };
        // The first of a group needs no savepoint: when it fails, there is nothing else to keep.
        const guarded = kept > 0;
        outcomes.push(outcome);
        try {
          if (!open) connection.exec("BEGIN IMMEDIATE");
          open = true;
          if (guarded) connection.exec("SAVEPOINT unit");
          const answer = one.unit.run();
          outcome.value = answer instanceof Promise ? await watched(one.unit, answer) : answer;
          if (guarded) connection.exec("RELEASE unit");
          kept++;
        } catch (error) {
          outcome.error = { cause: error };
          if (!open) continue;
          // A full disk, among others, makes SQLite undo the whole transaction by itself.
          if (!connection.inTransaction()) undoneBy(outcome);
          else if (guarded) connection.exec("ROLLBACK TO unit; RELEASE unit");
          else {
            connection.exec("ROLLBACK");
            open = false;
          }
        }
      }
      if (open) connection.exec("COMMIT");
    } catch (error) {
      undone(error);
      if (connection.inTransaction()) rollBack(connection);
    }
    for (const { one, value, error, again } of outcomes) {
      if (again) continue;
      if (!error) {
        one.resolve(value);
        continue;
      }
      const trouble = toLibsqlTrouble(error.cause);
      options.onFailed(trouble);
      one.reject(trouble);
    }
    return outcomes.length;
  };

  const watched = <T>(unit: WriteUnit<T>, answer: Promise<T>): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      let cancel = () => {};
      const look = (ms: number) => {
        cancel = clock.after(ms, () => {
          const idle = clock.elapsed() - (unit.activeAt?.() ?? 0);
          if (idle < idleMs) return look(idleMs - idle);
          const error = new StoreError(
            "unavailable",
            `a write issued no statement for ${idleMs} ms and was rolled back: nothing else may be awaited inside`,
          );
          unit.cut?.(error);
          reject(error);
        });
      };
      look(idleMs);
      answer.then(resolve, reject).finally(() => cancel());
    });

  const work = async () => {
    // Let what arrives in the same turn of the event loop share the commit.
    await nextTurn();
    while (waiting.length > 0) {
      const doneCount = await runGroup(waiting);
      waiting = waiting.slice(doneCount);
      if (waiting.length > 0) await nextTurn();
    }
    working = undefined;
  };

  return {
    submit<T>(unit: WriteUnit<T>): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        waiting.push({ unit, resolve: resolve as (value: unknown) => void, reject });
        working ??= work();
      });
    },
    /** Resolves when all that was submitted is settled. */
    async drain() {
      while (working) await working;
    },
  };
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));
