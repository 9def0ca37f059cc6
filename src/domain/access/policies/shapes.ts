import { Type } from "@sinclair/typebox";
import { resourceNameCharsMax } from "../../../gate/judge.ts";
import { described, shape } from "../../../kit/described.ts";
import { dryRunDecisionsMax, policyTextCharsMax } from "./limits.ts";

const text = Type.String();
const whole = Type.Integer();
const bounded = Type.String({ maxLength: policyTextCharsMax });
/** As long as the longest resource name of a call. */
const named = Type.String({ maxLength: resourceNameCharsMax });
const instant = Type.String({ format: "date-time" });

export const PolicyShape = Type.Object({
  id: described(text, "Id of the policy (`pol_…`)."),
  org_id: text,
  name: described(text, "Name of the policy."),
  effect: text,
  actions: text,
  resources: text,
  condition: text,
  version: shape.count("Version of the policy, from 1."),
  created_at: instant,
  updated_at: instant,
  warnings: Type.Optional(
    Type.Array(text, { description: "Patterns of the policy that cannot match anything." }),
  ),
});

export const VersionShape = Type.Object({
  id: Type.String({
    description: "Id of the version: `{policy_id}_v{version_num}`.",
    examples: ["pol_01kf3m8q4v7x2n9t5c6b1d0e8g_v2"],
  }),
  policy_id: text,
  version_num: described(whole, "Number of the version, from 1."),
  name: described(text, "Name of the policy."),
  effect: text,
  actions: text,
  resources: text,
  condition: text,
  enabled: shape.flag("Whether it is the version that holds now."),
  created_at: instant,
  author_id: described(text, "Id of the caller who wrote it."),
  change_reason: Type.Optional(text),
  template_id: Type.Optional(described(text, "The bundle that it came with.")),
  template_version: Type.Optional(described(text, "Version of the bundle.")),
  valid_from: described(instant, "Since when it holds, RFC 3339."),
  valid_until: Type.Optional(described(instant, "Until when it held, RFC 3339; absent while it holds.")),
});

export const DryRunInput = Type.Object({
  policy_id: Type.Optional(text),
  actions: Type.Optional(bounded),
  resources: Type.Optional(bounded),
  condition: Type.Optional(bounded),
  subject: Type.Optional(
    Type.Object(
      {
        id: Type.Optional(described(named, "Id of the caller.")),
        kind: Type.Optional(described(named, "Kind of the caller: `key`, `user` or `platform`.")),
        roles: Type.Optional(
          Type.Array(named, { maxItems: 100, description: "Names of the caller's roles." }),
        ),
      },
      { description: "The made-up caller." },
    ),
  ),
  request: Type.Optional(
    Type.Object(
      {
        action: Type.Optional(described(named, "Action that the call needs, such as `runs:read`.")),
        operation: Type.Optional(described(named, "Name of the operation, such as `runs.get`.")),
        type: Type.Optional(described(named, "Type of the resource, such as `run`.")),
        resource: Type.Optional(described(named, "Name of the resource.")),
        environment: Type.Optional(described(named, "Name of the resource's environment.")),
        environment_id: Type.Optional(named),
        project_id: Type.Optional(named),
      },
      { description: "The made-up call." },
    ),
  ),
  last: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: dryRunDecisionsMax,
      description: "Tries it also on this many of the org's last audited calls, at most 10,000.",
    }),
  ),
  since: Type.Optional(
    described(
      instant,
      "Tries it also on the org's audited calls from this instant on, RFC 3339: the newest `last` of them, or 10,000.",
    ),
  ),
});

export const DryRunShape = Type.Object({
  matched: shape.flag("Whether the policy would deny the call."),
  condition_source: described(text, "The condition that was tried."),
  compile_error: Type.Optional(described(text, "Why the condition cannot be used.")),
  eval_error: Type.Optional(described(text, "What the condition failed with.")),
  past: Type.Optional(
    Type.Object(
      {
        decisions: described(whole, "How many past calls it was tried on."),
        denied: described(whole, "How many of them it would have denied."),
        subjects: Type.Array(text, { description: "Ids of the callers it would have denied, at most 20." }),
      },
      { description: "What it would have done to past calls, when `last` or `since` asks." },
    ),
  ),
  warnings: Type.Optional(
    Type.Array(text, { description: "Patterns of the policy that cannot match anything." }),
  ),
});

export const TemplateShape = Type.Object({
  id: described(text, "Id of the bundle, such as `tmpl_read_only_production`."),
  template_id: described(text, "The same as `id`."),
  name: described(text, "Name of the bundle, for people."),
  version: described(text, "Version of the bundle."),
  description: described(text, "What the bundle is for."),
  bundle_json: described(text, "JSON text of its policies."),
  created_at: instant,
  updated_at: instant,
});

export const InstalledShape = Type.Object({
  template_id: described(text, "Id of the bundle, such as `tmpl_read_only_production`."),
  version: described(text, "Version of the bundle."),
  policies: Type.Array(PolicyShape, { description: "Its policies, as they stand now." }),
  policies_count: described(whole, "How many policies it has."),
});
