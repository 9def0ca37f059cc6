import { subjectOf } from "../gate/subject.ts";
import { actionsThatShowType, asksOfAll, screenOfAsks } from "../gate/things.ts";
import type { UnaryOperation } from "../kit/operation.ts";
import type { RequestCall } from "./call.ts";

/** Leaves out of a list the items that deny policies hide from its caller. */
export async function screenedList(
  call: RequestCall,
  operation: UnaryOperation,
  output: unknown,
): Promise<unknown> {
  const { lists, action } = operation;
  if (!lists || action === null || action === "authenticated") return output;
  const { type: ownType } = subjectOf(operation);
  const { also, shows, type = ownType } = lists;
  // What stands in lists of other things is hidden as it is in its own.
  const isOfTenants = !action.startsWith("platform:");
  const further = type === ownType || !isOfTenants ? [] : actionsThatShowType(type);
  const own = [action, ...(also === undefined ? [] : [also]), ...further].map((asked) => ({
    ...{ action: asked, type },
  }));
  const screen = await screenOfAsks(call, shows ? [...own, ...asksOfAll] : own);
  if (!screen) return output;
  const kept: unknown[] = [];
  for (const item of lists.items(output)) {
    const names = lists.namesOf(item as never);
    const things = own.flatMap((asked) => names.map((id) => ({ ...asked, id })));
    const refused = screen.refusalOf([...things, ...(shows?.(item as never) ?? [])]);
    if ((await refused) === undefined) kept.push(item);
  }
  // Totals are removed also when this page lost nothing: they count items hidden on other pages.
  return lists.only(output, kept as never[]);
}
