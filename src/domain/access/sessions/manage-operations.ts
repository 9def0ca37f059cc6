import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { listed, type Operation, unary } from "../../../kit/operation.ts";
import type { ListedSession, SessionList, SessionManagement } from "./manage.ts";

const text = Type.String({ maxLength: 2_000 });
const instant = Type.String({ format: "date-time" });
const byId = { id: Type.String({ minLength: 1, description: "Id of the session (`ses_…`); no token." }) };

const page = {
  cursor: Type.Optional(text),
  limit: maybe.count("How many at most: 50 unless it says otherwise."),
};

export const SessionShape = Type.Object({
  ...byId,
  kind: described(text, "user, platform (a user of the platform) or desktop (made with an API key)."),
  subject_id: described(text, "Id of the user; of a desktop session that of its key."),
  created_at: instant,
  expires_at: instant,
  last_used_at: maybe.time("When it was last used, to about a minute."),
  address: Type.Optional(described(text, "Address that it was begun from.")),
  user_agent: Type.Optional(described(text, "What the client that began it calls itself.")),
  issuer_id: Type.Optional(described(text, "The issuer by which it was begun (`iss_…`).")),
  is_current: shape.flag("Whether the request came with this session."),
});

const ListShape = Type.Object({
  sessions: Type.Array(SessionShape, { description: "Sessions, newest first." }),
  next_cursor: Type.Optional(text),
});

const EndedShape = Type.Object({ ended: shape.count("How many sessions it ended.") });

const sessionJson = (one: ListedSession) => ({
  ...{ id: one.id, kind: one.kind, subject_id: one.subjectId },
  ...{ created_at: rfc3339(one.createdAt), expires_at: rfc3339(one.expiresAt), is_current: one.isCurrent },
  ...(one.lastUsedAt !== undefined && { last_used_at: rfc3339(one.lastUsedAt) }),
  ...(one.address !== "" && { address: one.address }),
  ...(one.userAgent !== "" && { user_agent: one.userAgent }),
  ...(one.issuerId !== null && { issuer_id: one.issuerId }),
});

const listJson = ({ sessions, nextCursor }: SessionList) => ({
  sessions: sessions.map(sessionJson),
  ...(nextCursor !== undefined && { next_cursor: nextCursor }),
});

const ofUser = ({ user_id }: { user_id?: string }) => (user_id ? [{ type: "user", id: user_id }] : []);
const byUser = listed(({ subject_id }: { subject_id: string }) => [subject_id], {
  under: "sessions",
  type: "user",
});

export const sessionManagementOperations = (manage: SessionManagement): Operation[] => [
  ...ownSessions(manage),
  ...sessionsOfOrg(manage),
  ...sessionsOfPlatform(manage),
];

const own = { action: "authenticated", platformAction: "authenticated", scope: "none" as const };

const ownSessions = (manage: SessionManagement): Operation[] => [
  unary({
    ...own,
    name: "auth.sessions",
    reads: true,
    summary: "The caller's own sessions, newest first; of a key those that were made with it.",
    input: Type.Object(page),
    output: ListShape,
    rest: "GET /api/v1/auth/sessions",
    handle: async (query, call) => listJson(await manage.own(call, query)),
  }),
  unary({
    ...own,
    name: "auth.endSession",
    summary: "Ends a session of the caller's own: within a second no node believes its token.",
    input: Type.Object(byId),
    rest: "DELETE /api/v1/auth/sessions/{id}",
    handle: ({ id }, call) => manage.endOwn(call, id),
  }),
  unary({
    ...own,
    name: "auth.endOtherSessions",
    summary: "Ends every session of the caller's own but the one that the request came with.",
    input: Type.Object({}),
    output: EndedShape,
    rest: "POST /api/v1/auth/sessions/end-others",
    handle: async (_input, call) => ({ ended: await manage.endOthers(call) }),
  }),
];

const sessionsOfOrg = (manage: SessionManagement): Operation[] => [
  unary({
    name: "sessions.list",
    action: "users:read",
    scope: "none",
    reads: true,
    summary: "Sessions of the org's users, and those made with its keys, newest first.",
    input: Type.Object({
      ...page,
      user_id: Type.Optional(described(text, "Only those of this user, or made with this key.")),
    }),
    output: ListShape,
    rest: "GET /api/v1/sessions",
    about: ofUser,
    lists: byUser,
    handle: async (query, call) => listJson(await manage.ofOrg(call, { ...query, userId: query.user_id })),
  }),
  unary({
    name: "sessions.end",
    action: "users:manage",
    scope: "none",
    summary: "Ends a session of the org: within a second no node believes its token.",
    input: Type.Object(byId),
    rest: "DELETE /api/v1/sessions/{id}",
    about: ({ id, userId }: { id?: string; userId?: string }) =>
      userId === undefined ? [id ?? "*"] : [{ type: "user", id: userId }],
    handle: ({ id }, call, permit) => manage.end(call, id, (userId) => permit({ userId })),
  }),
  unary({
    name: "users.endSessions",
    action: "users:manage",
    scope: "none",
    summary: "Ends every session of a user of the org.",
    input: Type.Object({ id: Type.String({ minLength: 1, description: "Id of the user (`usr_…`)." }) }),
    output: EndedShape,
    rest: "DELETE /api/v1/users/{id}/sessions",
    handle: async ({ id }, call) => ({ ended: await manage.endOf(call, id) }),
  }),
];

const sessionsOfPlatform = (manage: SessionManagement): Operation[] => [
  unary({
    name: "platform.sessions.list",
    action: "platform:users:read",
    scope: "none",
    reads: true,
    summary: "Sessions of the platform's users, newest first.",
    input: Type.Object({
      ...page,
      user_id: Type.Optional(described(text, "Only those of this user of the platform.")),
    }),
    output: ListShape,
    rest: "GET /api/v1/platform/sessions",
    about: ofUser,
    lists: byUser,
    handle: async (query, call) => listJson(await manage.ofOrg(call, { ...query, userId: query.user_id })),
  }),
  unary({
    name: "platform.sessions.end",
    action: "platform:users:manage",
    scope: "none",
    summary: "Ends a session of a user of the platform.",
    input: Type.Object(byId),
    rest: "DELETE /api/v1/platform/sessions/{id}",
    about: ({ id, userId }: { id?: string; userId?: string }) =>
      userId === undefined ? [id ?? "*"] : [{ type: "user", id: userId }],
    handle: ({ id }, call, permit) => manage.end(call, id, (userId) => permit({ userId })),
  }),
];
