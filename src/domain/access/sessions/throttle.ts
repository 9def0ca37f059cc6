import type { Clock, Instant } from "../../../kit/clock.ts";
import { combine, type ItemOutcome } from "../../../kit/combine.ts";
import { Fault } from "../../../kit/fault.ts";
import { column, sql } from "../../../kit/sql.ts";
import { isOfItem, type Session, type Store } from "../../../store/store.ts";

interface Counted {
  count: number;
  endsAt: Instant;
}

/** Adds to what is counted, or begins anew where that has ended; answers what it has come to. */
async function add(
  session: Session,
  added: ReadonlyMap<string, number>,
  { now, endsAt }: { now: Instant; endsAt: Instant },
): Promise<Map<string, Counted>> {
  // In one order, so that nodes that count the same do not wait for each other in a circle.
  const keys = [...added.keys()].sort();
  if (keys.length === 0) return new Map();
  const found = await session.all<{
    key: string;
    count: number;
    ends_at: number;
  }>(sql`INSERT INTO login_attempts
      (key, count, ends_at)
    SELECT v.key, v.count, ${sql.bigint(endsAt)}
    FROM ${session.seams.rowsFrom("v", {
      key: column.text(keys),
      count: column.bigint(keys.map((key) => added.get(key)!)),
    })} WHERE true
    ON CONFLICT (key) DO UPDATE SET
      count = CASE WHEN login_attempts.ends_at <= ${sql.bigint(now)} THEN excluded.count
        ELSE login_attempts.count + excluded.count END,
      ends_at = CASE WHEN login_attempts.ends_at <= ${sql.bigint(now)} THEN excluded.ends_at
        ELSE login_attempts.ends_at END
    RETURNING key, count, ends_at`);
  return new Map(found.map((row) => [row.key, { count: row.count, endsAt: row.ends_at }]));
}

/**
 * Notes a time under each key, unless a later one stands there; answers the latest of all. Until the session
 * commits, other sessions that note one wait.
 */
async function noteLatest(
  session: Session,
  times: ReadonlyMap<string, Instant>,
  endsAt: Instant,
): Promise<Instant> {
  const keys = [...times.keys()].sort();
  const found = await session.all<{ count: number }>(sql`INSERT INTO login_attempts (key, count, ends_at)
    SELECT v.key, v.at, ${sql.bigint(endsAt)} FROM ${session.seams.rowsFrom("v", {
      key: column.text(keys),
      at: column.bigint(keys.map((key) => times.get(key)!)),
    })} WHERE true
    ON CONFLICT (key) DO UPDATE SET ends_at = excluded.ends_at,
      count = CASE WHEN excluded.count > login_attempts.count THEN excluded.count ELSE login_attempts.count END
    RETURNING count`);
  return Math.max(...found.map(({ count }) => count));
}

/** Those of the keys that have not ended. */
async function unexpired(
  reader: Pick<Store, "all">,
  keys: readonly string[],
  now: Instant,
): Promise<Set<string>> {
  const found = await reader.all<{ key: string }>(sql`SELECT key FROM login_attempts
    WHERE key IN ${sql.list([...new Set(keys)])} AND ends_at > ${now}`);
  return new Set(found.map(({ key }) => key));
}

export interface Cleared {
  cleared: readonly string[];
  /** What was counted here once too often. */
  less: string;
  known: string;
  now: Instant;
  knownUntil: Instant;
}

async function clear(session: Session, { cleared, less, known, now, knownUntil }: Cleared): Promise<void> {
  // Held in the order in which `add` takes them.
  await session.all(sql`SELECT key FROM login_attempts WHERE key IN ${sql.list([...cleared, less])}
    ORDER BY key ${session.seams.holdRow}`);
  await session.run(sql`DELETE FROM login_attempts WHERE key IN ${sql.list(cleared)}`);
  await session.run(sql`UPDATE login_attempts SET count = count - 1
    WHERE key = ${less} AND count > 0 AND ends_at > ${now}`);
  await session.run(sql`INSERT INTO login_attempts (key, count, ends_at) VALUES (${known}, 1, ${knownUntil})
    ON CONFLICT (key) DO UPDATE SET ends_at = excluded.ends_at`);
}

/** The oldest of what has ended. */
const forget = (session: Session, now: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM login_attempts WHERE key IN
    (SELECT key FROM login_attempts WHERE ends_at <= ${now} ORDER BY ends_at LIMIT ${limit})`);

export type Throttle = ReturnType<typeof openThrottle>;

/** A host with one IPv6 address usually has 2^64 of them: the whole /64 counts as one address. */
function networkOf(address: string): string {
  if (!address.includes(":") || address.toLowerCase().startsWith("::ffff:")) return address;
  const [head = "", tail] = address.split("::");
  const groups = head === "" ? [] : head.split(":");
  if (tail !== undefined) {
    const last = tail === "" ? [] : tail.split(":");
    while (groups.length + last.length < 8) groups.push("0");
    groups.push(...last);
  }
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}

/**
 * Logins tried in a minute: for one account from one address, from one address, and for one account from
 * anywhere.
 */
export const loginLimits = { attemptsMax: 10, addressAttemptsMax: 100, accountAttemptsMax: 100 };
const windowMs = 60_000;
/** How long an address stays known for an account: from there the limits on strangers do not apply. */
const knownMs = 30 * 24 * 60 * 60 * 1_000;
const refusalsRemembered = 100_000;
const flushMax = 128;
const waitingMax = 1_000;
const forgetSliceMax = 1_000;

/** Keys are hashes. Rows are locked in the order of their keys, pairs of account and address first. */
const hashOf = (order: 1 | 2, ...parts: string[]): string =>
  `${order}${new Bun.CryptoHasher("sha256").update(JSON.stringify(parts)).digest("hex")}`;

interface Attempt {
  pair: string;
  account: string;
  address: string;
  known: string;
}

const attemptOf = (account: string, from: string): Attempt => {
  const address = networkOf(from);
  return {
    pair: hashOf(1, "pair", account, address),
    account: hashOf(2, "account", account),
    address: hashOf(2, "address", address),
    known: hashOf(2, "known", account, address),
  };
};

const tooMany = (endsAt: Instant, now: Instant): Fault =>
  new Fault("resource_exhausted", "too many attempts, try again later", {
    headers: { "Retry-After": String(Math.max(1, Math.ceil((endsAt - now) / 1_000))) },
  });

export interface ThrottleDeps {
  store: Pick<Store, "all" | "write">;
  clock: Pick<Clock, "now">;
  /** Of one account from one address, a minute. */
  attemptsMax: number;
  /** Of one address over all accounts: of those that never logged in from there. */
  addressAttemptsMax: number;
  /** The same of one account over all addresses. */
  accountAttemptsMax: number;
}

/** Each attempt's number in the count of its key; attempts in one batch are numbered one by one. */
async function count(
  session: Session,
  keys: readonly string[],
  now: Instant,
): Promise<(key: string) => Counted> {
  const added = new Map<string, number>();
  for (const key of keys) added.set(key, (added.get(key) ?? 0) + 1);
  const totals = await add(session, added, { now, endsAt: now + windowMs });
  const places = new Map([...added].map(([key, more]) => [key, totals.get(key)!.count - more]));
  return (key) => {
    const place = places.get(key)! + 1;
    places.set(key, place);
    return { count: place, endsAt: totals.get(key)!.endsAt };
  };
}

/**
 * Counts attempts by account and address before the password is compared, so that parallel guesses on all
 * nodes count. Attempts by address alone and by account alone are counted too. These two limits refuse only
 * accounts that never logged in from the address: otherwise one guesser would lock out all users behind the
 * same proxy.
 */
export function openThrottle(deps: ThrottleDeps) {
  const { store, clock, attemptsMax, addressAttemptsMax, accountAttemptsMax } = deps;
  /** Keys that are refused until an instant: further attempts do not reach the store. */
  const refused = new Map<string, Instant>();

  function rememberRefusal(key: string, until: Instant): void {
    refused.delete(key);
    if (refused.size >= refusalsRemembered) refused.delete(refused.keys().next().value!);
    refused.set(key, until);
  }

  function stillRefused(key: string, now: Instant): Instant | undefined {
    const until = refused.get(key);
    if (until === undefined || until > now) return until;
    refused.delete(key);
    return undefined;
  }

  function over(key: string, { count: place, endsAt }: Counted, most: number): Instant | undefined {
    if (place <= most) return undefined;
    rememberRefusal(key, endsAt);
    return endsAt;
  }

  async function flush(attempts: readonly Attempt[]): Promise<ItemOutcome<boolean>[]> {
    const now = clock.now();
    return store.write(async (session) => {
      const ofPair = await count(
        session,
        attempts.map(({ pair }) => pair),
        now,
      );
      const ends = attempts.map(({ pair }) => over(pair, ofPair(pair), attemptsMax));
      // An attempt that the limit of its pair refused must not use up the limits that other callers share.
      const going = attempts.filter((_, at) => ends[at] === undefined);
      const wholes = going.flatMap(({ account, address }) => [account, address]);
      const ofWhole = await count(session, wholes, now);
      const known = await unexpired(
        session,
        going.map((one) => one.known),
        now,
      );
      return attempts.map((attempt, at): ItemOutcome<boolean> => {
        const until = ends[at] ?? wholesUntil(attempt, ofWhole, known);
        return until === undefined ? { value: known.has(attempt.known) } : { error: tooMany(until, now) };
      });
    });
  }

  function wholesUntil(
    { account, address, known }: Attempt,
    ofWhole: (key: string) => Counted,
    isKnown: ReadonlySet<string>,
  ): Instant | undefined {
    const ofAddress = over(address, ofWhole(address), addressAttemptsMax);
    const ofAccount = over(account, ofWhole(account), accountAttemptsMax);
    return isKnown.has(known) ? undefined : (ofAddress ?? ofAccount);
  }

  const combiner = combine<Attempt, boolean>({
    name: "sessions.attempts",
    lanes: 1,
    laneOf: () => 0,
    itemsMax: flushMax,
    waitingMax,
    flush,
    isOfItem,
  });

  return {
    /**
     * Counts an attempt, for all nodes, and says whether the address is known for the account; rejects with
     * `resource_exhausted` and `Retry-After` when there were too many.
     */
    async attempt(account: string, from: string): Promise<boolean> {
      const attempt = attemptOf(account, from);
      const now = clock.now();
      const pairUntil = stillRefused(attempt.pair, now);
      if (pairUntil !== undefined) throw tooMany(pairUntil, now);
      const until = stillRefused(attempt.address, now) ?? stillRefused(attempt.account, now);
      // Only attempts that may pass create rows.
      if (until !== undefined && (await unexpired(store, [attempt.known], now)).size === 0)
        throw tooMany(until, now);
      return combiner.submit(attempt);
    },

    /** The attempt succeeded: it no longer counts as a guess, and the address is known for the account. */
    async succeeded(account: string, from: string) {
      const { pair, account: whole, address, known } = attemptOf(account, from);
      const now = clock.now();
      for (const key of [pair, whole]) refused.delete(key);
      await store.write((session) =>
        clear(session, { cleared: [pair, whole], less: address, known, now, knownUntil: now + knownMs }),
      );
    },

    ...onceOf(deps),

    /** The tick of loop `sessions.attempts`: deletes counts whose window has ended. */
    async forgetOnce() {
      const now = clock.now();
      while ((await store.write((session) => forget(session, now, forgetSliceMax))) === forgetSliceMax);
    },
  };
}

/** Whether it is the first of this name within the time, for all nodes; a hash says what it is. */
const onceOf = ({ store, clock }: Pick<ThrottleDeps, "store" | "clock">) => {
  const onceIn = async (session: Session, hash: string, keptMs: number): Promise<boolean> => {
    const now = clock.now();
    const key = `3${hash}`;
    const counted = await add(session, new Map([[key, 1]]), { now, endsAt: now + keptMs });
    return counted.get(key)!.count === 1;
  };
  return {
    once: (hash: string, keptMs: number) => store.write((session) => onceIn(session, hash, keptMs)),
    /** The same, only once the session commits. */
    onceIn,
    /** Notes times under hashes; the latest of those that were noted within the time, by any node. */
    latestIn: (session: Session, times: ReadonlyMap<string, Instant>, keptMs: number): Promise<Instant> =>
      noteLatest(session, new Map([...times].map(([hash, at]) => [`4${hash}`, at])), clock.now() + keptMs),
  };
};
