import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import { allThingsOf, thingsOf } from "../../../gate/things.ts";
import {
  AlertDeliverySchema,
  AlertRuleSchema,
  AlertSchema,
  AlertService,
  AlertTargetSchema,
  ListAlertRulesResponseSchema,
  ListAlertsRequestSchema,
  ListAlertsResponseSchema,
  PutAlertRuleRequestSchema,
  SilenceAlertRuleRequestSchema,
  TestAlertRuleResponseSchema,
} from "../../../gen/svc/v1/alert_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { described } from "../../../kit/described.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import {
  type Call,
  listed,
  nothing,
  type Operation,
  type Permit,
  rpc,
  type Thing,
  unary,
} from "../../../kit/operation.ts";
import { timeBound } from "../../../kit/page.ts";
import { asSent } from "../../../kit/request.ts";
import { messageOf } from "../../../kit/wkt.ts";
import { boundsOf, type RuleRow, storedTargetsOf } from "./rule-rows.ts";
import { type ConditionName, conditionOf } from "./rules.ts";
import type { Alerts, ShownAlert } from "./service.ts";

const TargetShape = shapeOf(AlertTargetSchema, {
  absent: "url secret",
  own: { to: Type.Optional(Type.Array(Type.String(), { maxItems: 100 })) },
});

export const RuleShape = shapeOf(AlertRuleSchema, {
  absent: "function_id share window_minutes minimum waiting_ms silenced_until",
  own: { targets: Type.Array(TargetShape) },
});

const ruleJson = (row: RuleRow) => ({
  ...{ name: row.name, condition: row.condition },
  ...(row.function_id !== null && { function_id: row.function_id }),
  ...boundsOf(row),
  targets: storedTargetsOf(row).map(({ shown }) => ({ ...shown, ...(shown.to && { to: [...shown.to] }) })),
  ...{ repeat_after_ms: row.repeat_after_ms, resolve_after_ms: row.resolve_after_ms },
  ...(row.silenced_until !== null && { silenced_until: rfc3339(row.silenced_until) }),
  ...{ created_at: rfc3339(row.created_at), updated_at: rfc3339(row.updated_at) },
});

const DeliveryShape = shapeOf(AlertDeliverySchema, { absent: "last_error sent_at" });

export const AlertShape = shapeOf(AlertSchema, {
  absent: "subject detail told_at resolved_at resolved_by",
  own: { deliveries: Type.Array(DeliveryShape) },
});

const alertJson = ({ row, deliveries }: ShownAlert) => ({
  ...{ id: row.id, rule: row.rule, condition: row.condition },
  ...(row.subject !== "" && { subject: row.subject }),
  ...(row.detail !== "" && { detail: row.detail }),
  ...{ count: row.count, state: row.resolved_at === null ? "open" : "resolved" },
  ...{ opened_at: rfc3339(row.opened_at), seen_at: rfc3339(row.seen_at) },
  ...(row.told_at !== null && { told_at: rfc3339(row.told_at) }),
  ...(row.resolved_at !== null && { resolved_at: rfc3339(row.resolved_at) }),
  ...(row.resolved_by !== null && { resolved_by: row.resolved_by }),
  deliveries: deliveries.map(({ shown, kind, state, attempts, last_error, sent_at }) => ({
    ...{ target: shown, kind, state, attempts },
    ...(last_error !== null && { last_error }),
    ...(sent_at !== null && { sent_at: rfc3339(sent_at) }),
  })),
});

/** A message as the JSON that REST takes. */
const inputOf =
  <Desc extends DescMessage, Input>(schema: Desc) =>
  (message: MessageShape<Desc>): Input =>
    toJson(schema, message, { useProtoFieldName: true }) as Input;

const text = (description: string) => Type.Optional(Type.String({ maxLength: 2_048, description }));
const ruleName = Type.String({ minLength: 1, maxLength: 200, description: "Name of the rule." });
const Named = Type.Object({ name: ruleName });

const functionThing = (id: string | null): Thing[] =>
  id === null ? [] : [{ type: "function", id, action: "functions:read" }];

/** Secrets that sign its webhooks. */
const secretThings = (targets: readonly { secret?: string }[]): Thing[] =>
  thingsOf("secret", ...targets.flatMap(({ secret }) => secret || []));

const thingsOfRule = (rule: RuleRow): Thing[] => [
  ...functionThing(rule.function_id),
  ...secretThings(storedTargetsOf(rule).map(({ shown }) => shown)),
];

/** Of a rule that is named: who may not see its function, or a secret of it, does not see the rule. */
const ofRule = {
  alsoAsks: ["functions:read", "secrets:read"],
  about: ({ name, shows = [] }: { name: string; shows?: Thing[] }) => [name, ...shows],
};

/** The rule, once the caller was found to be allowed to see what it is about. */
async function shownRule(alerts: Alerts, name: string, call: Call, permit: Permit): Promise<RuleRow> {
  const rule = await alerts.find(call.environmentId, name);
  await permit({ name, shows: thingsOfRule(rule) });
  return rule;
}
const Id = Type.Object({
  id: Type.String({ minLength: 1, maxLength: 200, description: "Id of the alert (`alr_…`)." }),
});

const Put = shapeOf(PutAlertRuleRequestSchema, {
  absent: "share window_minutes minimum waiting_ms repeat_after_ms resolve_after_ms",
  own: {
    name: ruleName,
    function_id: Type.Optional(Type.String({ maxLength: 2_048 })),
    targets: Type.Array(TargetShape, { maxItems: 100 }),
  },
});

const read = { action: "alerts:read", reads: true } as const;
const manage = { action: "alerts:manage" } as const;

/** Who may not see a thing must not be told of it by a rule, and signs with no secret that is hidden. */
function aboutRule({ name, condition, function_id: id, targets }: Static<typeof Put>): (string | Thing)[] {
  const known = conditionOf(condition as ConditionName) as ReturnType<typeof conditionOf> | undefined;
  const named = known?.names ? allThingsOf(known.names) : [];
  const asked = [name, ...secretThings(targets), ...named];
  if (known?.function === "none" || (!known && !id)) return asked;
  return [
    ...asked,
    { type: "function", id: id || "*", action: "functions:read", ...(!id && { isPattern: true }) },
  ];
}

/** The things that alerts name. */
const alsoAsks = ["functions:read", "projections:read", "webhooks:read"];

/** What an alert is about. */
function thingsOfAlert({ row: { condition, subject } }: ShownAlert): Thing[] {
  const known = conditionOf(condition as ConditionName) as ReturnType<typeof conditionOf> | undefined;
  if (subject === "") return [];
  if (known?.names) return thingsOf(known.names, subject);
  return known?.function === "none" ? [] : functionThing(subject);
}

/** Words of an alert of all functions may name one that a policy hides. */
async function shownTo<Shown extends ShownAlert>(call: Call, list: readonly Shown[]): Promise<Shown[]> {
  const screen = await call.screen("functions:read", "function");
  if (!screen) return [...list];
  const isOpen = ({ row }: Shown) => conditionOf(row.condition as ConditionName)?.function === "none";
  return list.map((one) =>
    isOpen(one) || one.row.subject !== "" ? one : { ...one, row: { ...one.row, detail: "" } },
  );
}

interface AlertsPage {
  alerts: ShownAlert[];
  nextCursor: string | undefined;
}

const pageJson = ({ alerts, nextCursor = "" }: AlertsPage) => ({
  alerts: alerts.map(alertJson),
  next_cursor: nextCursor,
});

const { method } = AlertService;
const asRule = { json: ruleJson };
const ruleMessage = messageOf(AlertRuleSchema);
const toRule = (row: RuleRow) => ruleMessage(ruleJson(row));
const toAlert = (alert: ShownAlert) => messageOf(AlertSchema)(alertJson(alert));

export const alertsOperations = (alerts: Alerts): Operation[] => [
  ...ruleOperations(alerts),
  ...wordOperations(alerts),
  ...historyOperations(alerts),
];

const ruleOperations = (alerts: Alerts): Operation[] => [
  unary({
    name: "alerts.putRule",
    ...manage,
    alsoAsks: [...alsoAsks, "secrets:read"],
    // URLs of Slack are secrets.
    hides: ["targets"],
    summary: "Makes a rule that tells somebody when something goes wrong, or replaces the one of that name.",
    input: Put,
    about: aboutRule,
    output: RuleShape,
    rest: { route: "PUT /api/v1/alert-rules/{name}", ...asRule },
    rpc: rpc(
      method.putAlertRule,
      inputOf<typeof PutAlertRuleRequestSchema, Static<typeof Put>>(PutAlertRuleRequestSchema),
      toRule,
    ),
    async handle(input, call, permit) {
      const before = await alerts.before(call.environmentId, input.name);
      // It takes the place of what the caller must be allowed to see, too.
      if (before)
        await permit({
          ...{ ...input, condition: before.condition, function_id: before.function_id ?? "" },
          targets: storedTargetsOf(before).map(({ shown: { type, secret = "" } }) => ({ type, secret })),
        });
      return alerts.put(call.environmentId, input);
    },
  }),
  unary({
    name: "alerts.getRule",
    ...read,
    ...ofRule,
    summary: "One alert rule.",
    input: Named,
    output: RuleShape,
    rest: { route: "GET /api/v1/alert-rules/{name}", ...asRule },
    rpc: rpc(method.getAlertRule, asSent, toRule),
    handle: ({ name }, call, permit) => shownRule(alerts, name, call, permit),
  }),
  unary({
    name: "alerts.listRules",
    ...read,
    summary: "Alert rules of the environment, by name.",
    input: Type.Object({}),
    output: Type.Object({ rules: Type.Array(RuleShape, { description: "Rules, by name." }) }),
    rest: { route: "GET /api/v1/alert-rules", json: (list: RuleRow[]) => ({ rules: list.map(ruleJson) }) },
    rpc: rpc(method.listAlertRules, asSent, (list: RuleRow[]) =>
      messageOf(ListAlertRulesResponseSchema)({ rules: list.map(ruleJson) }),
    ),
    lists: listed(({ name }: RuleRow) => [name], {
      shows: thingsOfRule,
    }),
    handle: (_input, call) => alerts.list(call.environmentId),
  }),
  unary({
    name: "alerts.deleteRule",
    ...manage,
    ...ofRule,
    summary: "Deletes an alert rule with its alerts.",
    input: Named,
    rest: { route: "DELETE /api/v1/alert-rules/{name}", status: 204, encode: () => ({ status: 204 }) },
    rpc: rpc(method.deleteAlertRule, asSent, nothing),
    async handle({ name }, call, permit) {
      await shownRule(alerts, name, call, permit);
      await alerts.remove(call.environmentId, name);
    },
  }),
];

const Silence = Type.Object({
  name: ruleName,
  until: text("RFC 3339, at most a year from now; ends the silence when left out."),
});

const wordOperations = (alerts: Alerts): Operation[] => [
  unary({
    name: "alerts.silenceRule",
    ...manage,
    ...ofRule,
    summary: "Nobody is told anything by the rule until a time; its alerts open and end as ever.",
    input: Silence,
    output: RuleShape,
    rest: { route: "POST /api/v1/alert-rules/{name}/silence", ...asRule },
    rpc: rpc(
      method.silenceAlertRule,
      inputOf<typeof SilenceAlertRuleRequestSchema, Static<typeof Silence>>(SilenceAlertRuleRequestSchema),
      toRule,
    ),
    async handle({ name, until }, call, permit) {
      await shownRule(alerts, name, call, permit);
      return alerts.silence(call.environmentId, name, timeBound("until", until));
    },
  }),
  unary({
    name: "alerts.testRule",
    ...manage,
    ...ofRule,
    held: true,
    summary:
      "Sends a message that is marked as a test to each target of a rule, and answers what came of it.",
    input: Named,
    output: shapeOf(TestAlertRuleResponseSchema),
    rest: { route: "POST /api/v1/alert-rules/{name}/test", json: (results: object[]) => ({ results }) },
    rpc: rpc(method.testAlertRule, asSent, (results: object[]) =>
      messageOf(TestAlertRuleResponseSchema)({ results }),
    ),
    handle: async ({ name }, call, permit) => alerts.test(await shownRule(alerts, name, call, permit)),
  }),
];

const List = Type.Object({
  rule: text("Alerts of this rule."),
  state: text("`open` or `resolved`; both when left out."),
  limit: Type.Optional(Type.Integer()),
  cursor: text("`next_cursor` of the page before; opaque."),
});

const historyOperations = (alerts: Alerts): Operation[] => [
  unary({
    name: "alerts.list",
    ...read,
    alsoAsks,
    summary: "What alert rules found, newest first, with what became of its messages.",
    input: List,
    output: Type.Object({
      alerts: Type.Array(AlertShape, { description: "Alerts, newest first." }),
      next_cursor: described(Type.String(), "Of the next page; empty at the end."),
    }),
    rest: { route: "GET /api/v1/alerts", json: pageJson },
    rpc: rpc(
      method.listAlerts,
      inputOf<typeof ListAlertsRequestSchema, Static<typeof List>>(ListAlertsRequestSchema),
      (page: AlertsPage) => messageOf(ListAlertsResponseSchema)(pageJson(page)),
    ),
    lists: listed(({ row }: ShownAlert) => [row.id, row.rule], { under: "alerts", shows: thingsOfAlert }),
    async handle(input, call) {
      const page = await alerts.alerts(call.environmentId, input);
      return { ...page, alerts: await shownTo(call, page.alerts) };
    },
  }),
  unary({
    name: "alerts.resolve",
    ...manage,
    alsoAsks,
    summary: "Resolves an alert by hand: what lasts is told again only after it was over.",
    input: Id,
    about: ({ id, rule, shows = [] }: { id: string; rule?: string; shows?: Thing[] }) => [
      id,
      ...(rule === undefined ? [] : [rule]),
      ...shows,
    ],
    output: AlertShape,
    rest: { route: "POST /api/v1/alerts/{id}/resolve", json: alertJson },
    rpc: rpc(method.resolveAlert, asSent, toAlert),
    async handle({ id }, call, permit) {
      const row = await alerts.alert(call.environmentId, id);
      await permit({ id, rule: row.rule, shows: thingsOfAlert({ row, deliveries: [] }) });
      const [shown] = await shownTo(call, [await alerts.resolve(call.environmentId, id, call.caller.id)]);
      return shown!;
    },
  }),
];
