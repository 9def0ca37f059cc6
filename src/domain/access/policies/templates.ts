import type { BuiltInRole } from "../../../gate/actions.ts";

/** Deny policies that come with svc, installed together for the roles they name. */
export interface PolicyTemplate {
  id: string;
  name: string;
  version: string;
  description: string;
  policies: readonly {
    name: string;
    actions: string;
    resources: string;
    condition: string;
    roles: readonly BuiltInRole[];
  }[];
}

const writes = [
  "functions:register",
  "functions:invoke",
  "runs:cancel",
  "runs:delete",
  "runs:signal",
  "events:emit",
  "outbox:manage",
  "entities:append",
  "projections:manage",
  "secrets:manage",
  "agent:tools:register",
  "agent:tools:invoke",
  "agent:tools:unregister",
].join(",");

/** Environments whose name begins with `prod`. */
const production = "irn:svc:*:*:*:prod*:*";

export const policyTemplates: readonly PolicyTemplate[] = [
  {
    id: "tmpl_read_only_production",
    name: "Read-only production",
    version: "1.1.0",
    description: "Developers change nothing in environments whose name begins with prod.",
    policies: [
      {
        name: "read-only-production",
        actions: writes,
        resources: production,
        condition: "",
        roles: ["developer"],
      },
    ],
  },
  {
    id: "tmpl_no_secrets_for_viewers",
    name: "No secrets for viewers",
    version: "1.0.0",
    description: "Viewers do not see which secrets, KV entries and config documents there are.",
    policies: [
      {
        name: "no-secrets-for-viewers",
        actions: "secrets:read",
        resources: "*",
        condition: "",
        roles: ["viewer"],
      },
    ],
  },
  {
    id: "tmpl_business_hours",
    name: "Business hours",
    version: "1.0.0",
    description:
      'Developers change production only from Monday to Friday, 08:00 to 18:00 UTC. Edit the condition for another zone: time.now.getHours("Europe/Berlin").',
    policies: [
      {
        name: "business-hours",
        actions: writes,
        resources: production,
        condition: "time.weekday == 0 || time.weekday == 6 || time.hour < 8 || time.hour >= 18",
        roles: ["developer"],
      },
    ],
  },
  {
    id: "tmpl_protected_functions",
    name: "Protected functions",
    version: "1.0.0",
    description: "Only admins change or invoke functions whose id begins with protected-.",
    policies: [
      {
        name: "protected-functions",
        actions: "functions:register,functions:invoke",
        resources: "irn:svc:*:*:function:*:protected-*",
        condition: "",
        roles: ["developer"],
      },
    ],
  },
];
