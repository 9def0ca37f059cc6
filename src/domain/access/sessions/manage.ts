import type { Caller } from "../../../kit/caller.ts";
import { actsForPlatform } from "../../../kit/caller.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import type { Call } from "../../../kit/operation.ts";
import { pageOf, pageSize, readCursor, writeCursor } from "../../../kit/page.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { SessionRow } from "./rows.ts";
import * as rows from "./rows.ts";
import type { Sessions } from "./service.ts";

/** A session as it is listed: nothing of it can be used as its token. */
export interface ListedSession extends Omit<SessionRow, "lastUsedAt"> {
  lastUsedAt: Instant | undefined;
  /** It is the one that the call came with. */
  isCurrent: boolean;
}

export interface SessionPageQuery {
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface SessionList {
  sessions: ListedSession[];
  nextCursor: string | undefined;
}

type OfCall = Pick<Call, "caller" | "session">;

/** Sessions as their users and admins see and end them. */
export type SessionManagement = ReturnType<typeof openSessionManagement>;

export interface SessionManagementDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  sessions: Pick<Sessions, "idOf" | "forget">;
  /** Throws `not_found` unless the user is of the org. */
  requireUser: (orgId: string, userId: string) => Promise<unknown>;
  /** Called for each end in the platform's own org, in its transaction. */
  record: (session: Session, by: Caller, payload: Record<string, unknown>) => Promise<void>;
}

const prefix = "ses_";
const hashOf = (id: string): string => (id.startsWith(prefix) ? id.slice(prefix.length) : "");
const none = "";

export function openSessionManagement(deps: SessionManagementDeps) {
  const { store, clock, sessions, requireUser, record } = deps;

  const currentOf = async ({ session }: OfCall): Promise<string> =>
    session === undefined ? none : ((await sessions.idOf(session)) ?? none);

  async function list(
    call: OfCall,
    { cursor, limit }: SessionPageQuery,
    read: (page: rows.SessionsPage) => Promise<SessionRow[]>,
  ): Promise<SessionList> {
    const size = pageSize(limit);
    const after = cursor === undefined || cursor === "" ? undefined : readCursor("cursor", cursor);
    const [found, current] = await Promise.all([
      read({ now: clock.now(), after, limit: size + 1 }),
      currentOf(call),
    ]);
    const { items, nextCursor } = pageOf(found, size, ({ createdAt, id }) =>
      writeCursor({ at: createdAt, id }),
    );
    return {
      sessions: items.map(({ lastUsedAt, ...row }) => ({
        ...row,
        id: `${prefix}${row.id}`,
        lastUsedAt: lastUsedAt ?? undefined,
        isCurrent: row.id === current,
      })),
      nextCursor,
    };
  }

  /** Own sessions are the platform's also while their user acts in a tenant's org. */
  const isOfPlatform = (caller: Caller, subjectId: string) =>
    actsForPlatform(caller) || (caller.kind === "platform" && caller.id === subjectId);

  async function endOne(
    { caller }: OfCall,
    id: string,
    isMeant: (row: SessionRow) => boolean,
  ): Promise<void> {
    const hash = hashOf(id);
    await store.write(async (session) => {
      const row = await rows.holdSession(session, hash);
      if (!row || row.expiresAt <= clock.now() || !isMeant(row)) throw missing("session", id);
      await rows.deleteSession(session, hash);
      if (isOfPlatform(caller, row.subjectId))
        await record(session, caller, { session_id: id, user_id: row.subjectId });
    });
    sessions.forget((known) => known.id === hash);
  }

  async function endMany({ caller }: OfCall, subjectId: string, but: string): Promise<number> {
    const ended = await store.write(async (session) => {
      const count = await rows.deleteOthers(session, { subjectId, but });
      if (count > 0 && isOfPlatform(caller, subjectId))
        await record(session, caller, { user_id: subjectId, count });
      return count;
    });
    sessions.forget((known) => known.caller.id === subjectId && known.id !== but);
    return ended;
  }

  return {
    /** The caller's own, newest first; of a key those that were made with it. */
    own: (call: OfCall, query: SessionPageQuery) =>
      list(call, query, (page) => rows.sessionsOf(store, call.caller.id, page)),

    /**
     * Of the org in which the caller acts: the platform's own for a platform credential that impersonates
     * none.
     */
    async ofOrg(
      call: OfCall,
      { userId, ...query }: SessionPageQuery & { userId?: string | undefined },
    ): Promise<SessionList> {
      const { orgId } = call.caller;
      return list(call, query, (page) =>
        userId === undefined || userId === ""
          ? rows.sessionsOfOrg(store, { ...page, orgId })
          : rows.sessionsOf(store, userId, { ...page, orgId }),
      );
    },

    /** `not_found` for what is not the caller's. */
    endOwn: (call: OfCall, id: string) => endOne(call, id, ({ subjectId }) => subjectId === call.caller.id),

    /** All of the caller's but the one that the call came with; answers how many. */
    async endOthers(call: OfCall): Promise<number> {
      return endMany(call, call.caller.id, await currentOf(call));
    },

    /** `permit` throws unless the caller may end sessions of this user. `not_found` for another org's. */
    async end(call: OfCall, id: string, permit: (userId: string) => Promise<void>) {
      const isOfOrg = ({ orgId }: SessionRow) => orgId === call.caller.orgId;
      const sid = hashOf(id);
      const row = (await rows.sessionsById(store, [sid])).get(sid);
      if (row && isOfOrg(row)) await permit(row.subjectId);
      await endOne(call, id, isOfOrg);
    },

    /** Every session of a user of the caller's org; answers how many. */
    async endOf(call: OfCall, userId: string): Promise<number> {
      await requireUser(call.caller.orgId, userId);
      return endMany(call, userId, none);
    },
  };
}
