import { stated } from "../../../kit/cases.ts";
import { type Instant, parseRfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { PlatformUser } from "./rows.ts";

/** The types of platform audit rows; callers may filter by them, so the list is closed. */
export const platformEventTypes = [
  "platform.user.created",
  "platform.user.updated",
  "platform.user.deleted",
  "platform.key.created",
  "platform.key.revoked",
  "platform.role.changed",
  "platform.session.ended",
  "platform.issuer.changed",
  "platform.break_glass",
  "platform.impersonated",
] as const;

export type PlatformEventType = (typeof platformEventTypes)[number];

export const adminRoleId = "role_platform_admin";
export const platformUsersMax = 1_000;

const isAdmin = (user: Pick<PlatformUser, "isActive" | "roles">): boolean =>
  user.isActive && user.roles.includes(adminRoleId);

export type StoredUserChange = Partial<
  Pick<PlatformUser, "name" | "email" | "roles" | "isActive" | "passwordHash" | "breakGlass">
>;

export const endsSessions = ({ passwordHash, isActive }: StoredUserChange): boolean =>
  passwordHash !== undefined || isActive === false;

/** Tokens from before a change that ends sessions are refused, also those of the same millisecond. */
export const changed = (before: PlatformUser, change: StoredUserChange, at: Instant): PlatformUser => ({
  ...before,
  ...change,
  ...(endsSessions(change) && { tokensAfter: Math.max(at, before.tokensAfter + 1) }),
  updatedAt: at,
});

/** What the audit keeps of a change: of a password only that it was changed. */
export const auditedChange = (change: StoredUserChange) => {
  const { name, email, roles, isActive, passwordHash, breakGlass } = change;
  return {
    ...stated({ name, email }),
    ...(roles && { role_ids: roles }),
    ...(isActive !== undefined && { is_active: isActive }),
    ...(passwordHash !== undefined && { password_changed: true }),
    ...(breakGlass !== undefined && { break_glass: breakGlass }),
  };
};

/**
 * Throws when the change leaves no active platform_admin. Own roles do not count: another admin may change
 * them.
 */
export function requireAdminLeft(
  all: readonly PlatformUser[],
  before: PlatformUser,
  after: PlatformUser | undefined,
): void {
  if (!isAdmin(before) || (after && isAdmin(after))) return;
  if (all.some((user) => user.id !== before.id && isAdmin(user))) return;
  throw new Fault("failed_precondition", "the last active platform_admin must stay");
}

const isKept = (user: PlatformUser): boolean => isAdmin(user) && user.breakGlass && user.passwordHash !== "";

/**
 * Throws when passwords are off and the change leaves nobody whose password lets them in: without the
 * provider the platform would have no way in.
 */
export function requireBreakGlassLeft(
  all: readonly PlatformUser[],
  before: PlatformUser,
  after: PlatformUser | undefined,
): void {
  if (!isKept(before) || (after && isKept(after))) return;
  if (all.some((user) => user.id !== before.id && isKept(user))) return;
  throw new Fault(
    "failed_precondition",
    "passwords are off: the last active platform_admin with break_glass must stay",
  );
}

const dayMs = 24 * 60 * 60 * 1000;

/** ISO 8601: an instant, or a day, which `to` includes to its end. */
export function readBound(field: "from" | "to", text: string): Instant {
  const isDay = /^\d{4}-\d{2}-\d{2}$/.test(text);
  const at = parseRfc3339(isDay ? `${text}T00:00:00Z` : text);
  if (at === undefined) throw invalid(field, "must be an ISO 8601 date and time with zone, or a date");
  return isDay && field === "to" ? at + dayMs - 1 : at;
}
