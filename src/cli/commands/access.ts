import type { PlainCommand } from "../command.ts";
import type { Group } from "../group.ts";
import { addPlatformLogin } from "../login.ts";

const things = (
  what: string,
  group: string,
  { updates = true, columns }: { updates?: boolean; columns?: readonly string[] } = {},
  byName = `${group}.list`,
): PlainCommand[] => [
  { name: "list", operation: byName, shows: { columns } },
  { name: "get", operation: `${group}.get`, takes: ["id"], byName, shows: { items: "" } },
  { name: "create", operation: `${group}.create`, shows: { items: "" } },
  ...(updates
    ? [{ name: "update", operation: `${group}.update`, takes: ["id"], byName, shows: { items: "" } }]
    : []),
  { name: "delete", operation: `${group}.delete`, takes: ["id"], byName, confirms: `Delete ${what} {id}?` },
];

const keyColumns = ["id", "name", "key_prefix", "role_ids", "environment_id", "last_used_at", "expires_at"];
/** Those of the platform have `role_ids`, and may be inactive. */
const userColumns = ["id", "email", "name", "roles", "last_login_at", "created_at"];
const platformColumns = ["id", "email", "name", "role_ids", "is_active", "last_login_at"];

const named = (what: string, group: string) =>
  things(what, group).map((one) => (one.name === "create" ? { ...one, takes: ["name"] } : one));

/** Deny policies of a role, of an org's by `policies` or of the platform's by `platform.policies`. */
const ofRole = (policies: string, byName: string) => [
  { name: "policies", operation: `${policies}.ofRole`, takes: ["id"], byName },
  { name: "assign", operation: `${policies}.assign`, takes: ["id"], byName },
  { name: "unassign", operation: `${policies}.unassign`, takes: ["id", "policy_id"], byName },
];

const identitiesOf = (group: string) => [
  { name: "identities", operation: `${group}.identities`, takes: ["id"], byName: `${group}.list` },
  {
    name: "unlink",
    operation: `${group}.unlink`,
    takes: ["id", "identity"],
    byName: `${group}.list`,
    confirms: "Part {identity} from user {id}? They sign in by it no more.",
  },
];

const issuersOf = (group: string) =>
  things("issuer", group).map((one) => (one.name === "create" ? { ...one, takes: ["name"] } : one));

const passwordsOf = (group: string) => [
  { name: "sign-in", operation: `${group}.get`, shows: { items: "" } },
  {
    ...{ name: "passwords", operation: `${group}.update`, takes: ["passwords"], shows: { items: "" } },
    abouts: { passwords: "on or off: whether passwords sign in, besides issuers." },
  },
];

/** Who there is, and who may do what. */
export const accessGroups: readonly Group[] = [
  {
    name: "project",
    about: "Projects: they group environments.",
    plain: named("project", "projects").filter(({ name }) => name !== "get"),
  },
  {
    name: "env",
    about: "Environments: everything else stands in one.",
    plain: [
      ...named("environment", "environments").map((one) =>
        one.name === "create" ? { ...one, flags: { project_id: "project" } } : one,
      ),
      {
        name: "rotate-key",
        operation: "environments.rotateKey",
        takes: ["id"],
        byName: "environments.list",
        confirms: "Give environment {id} another key? The one it has stops working.",
      },
    ],
  },
  { name: "org", about: "Orgs: they own projects, users and keys.", plain: named("org", "orgs") },
  {
    name: "apikey",
    about: "API keys.",
    plain: [
      { name: "list", operation: "keys.list", shows: { columns: keyColumns } },
      { name: "get", operation: "keys.get", takes: ["id"], byName: "keys.list", shows: { items: "" } },
      { name: "create", operation: "keys.create", takes: ["name"], shows: { items: "" } },
      {
        name: "rotate",
        operation: "keys.rotate",
        takes: ["id"],
        byName: "keys.list",
        confirms: "Rotate key {id}? The old one stops working.",
        shows: { items: "" },
      },
      {
        ...{ name: "set-roles", operation: "keys.setRoles", takes: ["id"], byName: "keys.list" },
        shows: { items: "" },
      },
      {
        ...{ name: "delete", operation: "keys.delete", takes: ["id"], byName: "keys.list" },
        confirms: "Delete key {id}?",
      },
    ],
  },
  {
    name: "user",
    about: "Users of an org.",
    plain: [
      ...things("user", "users", { columns: userColumns }),
      { name: "password", operation: "users.changePassword", takes: ["id"], byName: "users.list" },
      {
        name: "end-sessions",
        operation: "users.endSessions",
        takes: ["id"],
        byName: "users.list",
        confirms: "End every session of user {id}?",
        shows: { items: "" },
      },
      ...identitiesOf("users"),
    ],
  },
  {
    name: "session",
    about: "Sign-in sessions: one's own, and those of an org.",
    plain: [
      { name: "own", operation: "auth.sessions", shows: { items: "sessions" } },
      { name: "list", operation: "sessions.list", shows: { items: "sessions" } },
      { name: "end", operation: "sessions.end", takes: ["id"], confirms: "End session {id}?" },
    ],
  },
  {
    name: "issuer",
    about: "OpenID providers by which people of an org sign in.",
    plain: [...issuersOf("issuers"), ...passwordsOf("signIn")],
  },
  {
    name: "role",
    about: "Roles of users and keys.",
    plain: [...named("role", "roles"), ...ofRole("policies", "roles.list")],
  },
  {
    name: "policy",
    about: "Deny policies.",
    plain: [
      ...things("policy", "policies"),
      { name: "test", operation: "policies.dryRun", shows: { items: "" } },
      { name: "rollback", operation: "policies.rollback", takes: ["id", "version"], shows: { items: "" } },
    ],
    groups: [
      {
        name: "versions",
        about: "Versions of a policy.",
        plain: [{ name: "list", operation: "policies.versions", takes: ["id"] }],
      },
      {
        name: "template",
        about: "Bundles of deny policies that come with svc.",
        plain: [
          { name: "list", operation: "policyTemplates.list" },
          { name: "install", operation: "policyTemplates.install", takes: ["id"] },
        ],
      },
    ],
  },
  {
    name: "tenant",
    about: "Orgs of the installation.",
    plain: [
      { name: "list", operation: "tenants.list" },
      { name: "provision", operation: "tenants.provision", shows: { items: "" } },
    ],
  },
  {
    name: "audit",
    about: "What callers did, were allowed and were refused.",
    plain: [
      { name: "trail", operation: "audit.trail", shows: { items: "events" } },
      { name: "auth-trail", operation: "audit.authTrail", shows: { items: "events" } },
      { name: "settings", operation: "audit.settings", shows: { items: "" } },
      { name: "verify", operation: "audit.verify", shows: { items: "" } },
    ],
  },
  {
    name: "platform",
    about: "The installation: its tenants, users, roles and policies.",
    plain: [
      { name: "audit", operation: "platform.audit.list" },
      { name: "create-admin", operation: "platform.bootstrap", shows: { items: "" } },
    ],
    more: addPlatformLogin,
    groups: [
      {
        name: "users",
        about: "Users of the platform.",
        plain: things("user", "platform.users", { columns: platformColumns }),
      },
      {
        name: "sessions",
        about: "Sign-in sessions of the platform's users.",
        plain: [
          { name: "list", operation: "platform.sessions.list", shows: { items: "sessions" } },
          { name: "end", operation: "platform.sessions.end", takes: ["id"], confirms: "End session {id}?" },
        ],
      },
      {
        name: "roles",
        about: "Roles of the platform.",
        plain: [...named("role", "platform.roles"), ...ofRole("platform.policies", "platform.roles.list")],
      },
      {
        name: "issuers",
        about: "OpenID providers by which users of the platform sign in.",
        plain: [...issuersOf("platform.issuers"), ...passwordsOf("platform.signIn")],
      },
      { name: "policies", about: "Policies of the platform.", plain: things("policy", "platform.policies") },
      {
        name: "tenants",
        about: "Tenants of the platform.",
        plain: things("tenant", "platform.tenants", { updates: false }),
      },
    ],
  },
];
