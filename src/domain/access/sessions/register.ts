import { hash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { gatheredReads } from "../../../kit/gathered-reads.ts";
import type { Ids } from "../../../kit/ids.ts";
import { LastUsed } from "../../../kit/last-used.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";

/** Lifetime of a dashboard session and its cookie. */
export const sessionMs = 24 * 60 * 60 * 1000;

export type { SessionRow } from "./rows.ts";

export type SessionKind = (typeof rows.sessionKinds)[number];

/** Where a login came from, as its session tells later. */
export interface LoginOrigin {
  address: string;
  userAgent?: string | undefined;
}

/** A session that was just made; only its token has `sid`, the table has the hash. */
export interface Issued {
  kind: SessionKind;
  subjectId: string;
  orgId: string;
  sid: string;
  createdAt: Instant;
  expiresAt: Instant;
}

/** The rows of sessions: a token without a row is refused, even with a valid signature. */
export type SessionRegister = ReturnType<typeof openSessionRegister>;

/** Sessions of one user, or made with one key. */
export const sessionsMax = 200;
/** More than a subject can have: they are bounded as they are made. */
const oldestAtOnce = 1_000;
const sidBytes = 16;
/** Sessions that one query looks up. */
const soughtMax = 100;
/** Of what a client calls itself, as much as tells it from others. */
const userAgentCharsMax = 300;
/** Of what a proxy says where a client is. */
const addressCharsMax = 100;
/** A session in use writes that it is at most this often. */
const usedEveryMs = 60_000;

const idOf = (sid: string): string => hash("sha256", sid, "hex");

export function openSessionRegister(
  deps: Basics<"store" | "clock"> & { ids: Pick<Ids, "secret">; ttlMs: number },
) {
  const { store, clock, ids, ttlMs } = deps;
  // A node with many open pages looks all their sessions up twice a second.
  const find = gatheredReads({
    ...{ clock, keysMax: soughtMax },
    read: (sought) => rows.sessionsById(store, sought),
  });
  const use = new LastUsed(clock, (slice) => store.write((session) => rows.updateLastUsed(session, slice)));
  return {
    /** The session holds the subject's row. Beyond `sessionsMax` the oldest sessions are deleted. */
    async add(
      session: Session,
      {
        kind,
        subjectId,
        orgId,
        after,
        from,
        by,
      }: {
        kind: SessionKind;
        subjectId: string;
        orgId: string;
        /**
         * The subject's `tokensAfter`: the new session is dated later, even when this node's clock is behind.
         */
        after: Instant;
        from: LoginOrigin;
        /** The issuer that it came from, and which session there. */
        by?: { issuerId: string; sid: string | undefined };
      },
    ): Promise<Issued> {
      const sid = ids.secret(sidBytes);
      const createdAt = Math.max(clock.now(), after);
      // Tokens have whole seconds.
      const expiresAt = Math.floor((createdAt + ttlMs) / 1_000) * 1_000;
      await rows.deleteOldest(session, { kind, subjectId }, { kept: sessionsMax - 1, most: oldestAtOnce });
      const userAgent = (from.userAgent ?? "").slice(0, userAgentCharsMax);
      const address = from.address.slice(0, addressCharsMax);
      const row = { id: idOf(sid), kind, subjectId, orgId, createdAt, expiresAt, address, userAgent };
      await rows.insertSession(session, {
        ...row,
        issuerId: by?.issuerId ?? null,
        providerSid: by?.sid ?? null,
      });
      return { kind, subjectId, orgId, sid, createdAt, expiresAt };
    },
    find: (sid: string) => find(idOf(sid)),
    /** The id by which others know the session; the token has another. */
    idOf,
    /** The tokens of the session were believed just now; `writeUsed` stores it later. */
    used({ id, lastUsedAt }: rows.SessionRow) {
      if (lastUsedAt === null || clock.now() - lastUsedAt >= usedEveryMs) use.note(id);
    },
    /** One round of the loop `sessions.used`. */
    writeUsed: () => use.write(),
    end: (sid: string) => store.write(async (session) => void (await rows.deleteSession(session, idOf(sid)))),
    /** Ends all sessions of a subject, in the transaction that revokes them. */
    async endOf(session: Session, kind: SessionKind, subjectId: string) {
      await rows.deleteSessionsOf(session, { kind, subjectId });
    },
    /** Ends what came from the issuer: of one of its own sessions, or of a user. Answers whose they were. */
    endOfIssuer: rows.deleteOfIssuer,
    /** Ends what came from issuers, but from none of these: of a subject. */
    endFromIssuers: rows.deleteFromIssuers,
    /** Deletes expired sessions. */
    async forgetExpired(write: Store["write"]) {
      const before = clock.now();
      while (
        (await write((session) => rows.deleteExpired(session, before, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}
