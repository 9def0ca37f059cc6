import { Type } from "@sinclair/typebox";
import {
  ErrorGroupSchema,
  ErrorService,
  ListErrorGroupsResponseSchema,
} from "../../../gen/svc/v1/error_pb.ts";
import { inSnakeCase } from "../../../kit/cases.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Call, listedById, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asGiven, asSent } from "../../../kit/request.ts";
import { messageOf } from "../../../kit/wkt.ts";
import type { ErrorGroupRow, ErrorGroups } from "./service.ts";

const groupJson = (row: ErrorGroupRow) => ({
  ...{ id: row.id, function_id: row.function_id, code: row.code, message: row.message, frame: row.frame },
  ...{ count: row.count, sample_run_id: row.sample_run_id },
  ...{ first_seen_at: rfc3339(row.first_seen_at), last_seen_at: rfc3339(row.last_seen_at) },
});

const toGroup = (row: ErrorGroupRow) => messageOf(ErrorGroupSchema)(groupJson(row));

const text = (description: string) => Type.Optional(Type.String({ maxLength: 2_048, description }));

export const GroupOut = shapeOf(ErrorGroupSchema);

const read = { action: "runs:read", reads: true, waitsFor: "log" } as const;

interface GroupsPage {
  groups: ErrorGroupRow[];
  nextCursor: string | undefined;
}

/** Hides a group whose newest run is hidden from the caller; its counts would tell of other hidden runs. */
async function shownTo(call: Call, groups: readonly ErrorGroupRow[]): Promise<ErrorGroupRow[]> {
  const screen = await call.screen("runs:read", "run");
  if (!screen) return [...groups];
  const shown: ErrorGroupRow[] = [];
  for (const group of groups)
    if (!(await screen.refusalOf([group.sample_run_id]))) shown.push({ ...group, count: 0 });
  return shown;
}

export const errorsOperations = (errors: ErrorGroups): Operation[] => [
  unary({
    name: "errors.list",
    ...read,
    summary: "Failures that look alike, of one function or of all, seen last first.",
    input: Type.Object({
      function_id: text("Groups of this function."),
      since: text("RFC 3339: groups that were seen then or later."),
      limit: Type.Optional(Type.Integer()),
      cursor: text("Where the page before ended."),
    }),
    output: shapeOf(ListErrorGroupsResponseSchema),
    rest: {
      route: "GET /api/v1/errors",
      json: ({ groups, nextCursor = "" }: GroupsPage) => ({
        groups: groups.map(groupJson),
        next_cursor: nextCursor,
      }),
    },
    rpc: rpc(
      ErrorService.method.listErrorGroups,
      (m) => inSnakeCase(asGiven(m)),
      ({ groups, nextCursor = "" }: GroupsPage) => ({ groups: groups.map(toGroup), nextCursor }),
    ),
    lists: listedById("groups"),
    async handle({ function_id, ...rest }, call) {
      const page = await errors.list(call.environmentId, {
        ...rest,
        ...(function_id !== undefined && { functionId: function_id }),
      });
      return { ...page, groups: await shownTo(call, page.groups) };
    },
  }),
  unary({
    name: "errors.get",
    ...read,
    summary: "One group of failures.",
    input: Type.Object({
      id: Type.String({ minLength: 1, maxLength: 200, description: "Id of the group (`err_…`)." }),
    }),
    output: GroupOut,
    rest: { route: "GET /api/v1/errors/{id}", json: groupJson },
    rpc: rpc(ErrorService.method.getErrorGroup, asSent, toGroup),
    async handle({ id }, call) {
      const [group] = await shownTo(call, [await errors.get(call.environmentId, id)]);
      if (!group) throw missing("error group", id);
      return group;
    },
  }),
];
