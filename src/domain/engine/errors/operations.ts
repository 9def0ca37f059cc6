import { Type } from "@sinclair/typebox";
import { ErrorService } from "../../../gen/svc/v1/error_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { shape } from "../../../kit/described.ts";
import { missing } from "../../../kit/fault.ts";
import { type Call, listedById, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { instantOf } from "../../../kit/wkt.ts";
import type { ErrorGroupRow, ErrorGroups } from "./service.ts";
import { groupJson, toGroup } from "./wire.ts";

const text = (description: string) => Type.Optional(Type.String({ maxLength: 2_048, description }));

export const GroupOut = Type.Object({
  id: shape.text("ListRuns takes it as error_group."),
  function_id: shape.text("Whose runs failed."),
  code: shape.text("Of the error; empty for none."),
  message: shape.text("Without numbers, ids and quoted values."),
  frame: shape.text("The first frame of the stack, without its line."),
  count: shape.count("Failures so far; 0 for a caller from whom deny policies may keep runs."),
  first_seen_at: shape.time("Of the first failure."),
  last_seen_at: shape.time("Of the last failure."),
  sample_run_id: shape.text("The newest run that failed so."),
});

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
    output: Type.Object({
      groups: Type.Array(GroupOut, { description: "Groups, those seen last first." }),
      next_cursor: shape.text("Of the next page; empty at the end."),
    }),
    rest: {
      route: "GET /api/v1/errors",
      json: ({ groups, nextCursor = "" }: GroupsPage) => ({
        groups: groups.map(groupJson),
        next_cursor: nextCursor,
      }),
    },
    rpc: rpc(
      ErrorService.method.listErrorGroups,
      ({ functionId, since, limit, cursor }) => ({
        ...{ function_id: functionId, limit, cursor },
        ...(since && { since: rfc3339(instantOf(since)) }),
      }),
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
    rpc: rpc(ErrorService.method.getErrorGroup, ({ id }) => ({ id }), toGroup),
    async handle({ id }, call) {
      const [group] = await shownTo(call, [await errors.get(call.environmentId, id)]);
      if (!group) throw missing("error group", id);
      return group;
    },
  }),
];
