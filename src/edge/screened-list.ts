import { subjectOf } from "../access/subject.ts";
import type { Screen, UnaryOperation } from "../kit/operation.ts";
import type { RequestCall } from "./call.ts";

/** Leaves out of a list the items that deny policies hide from its caller. */
export async function screenedList(
  call: RequestCall,
  operation: UnaryOperation,
  output: unknown,
): Promise<unknown> {
  const { lists, action } = operation;
  if (!lists || action === null || action === "authenticated") return output;
  const { type = subjectOf(operation).type } = lists;
  const screens: Screen[] = [];
  for (const asked of lists.also === undefined ? [action] : [action, lists.also]) {
    const screen = await call.screen(asked, type);
    if (screen) screens.push(screen);
  }
  if (screens.length === 0) return output;
  const items = lists.items(output);
  const kept: unknown[] = [];
  for (const item of items) {
    const names = lists.namesOf(item as never);
    let isKept = true;
    for (const screen of screens) isKept &&= (await screen.refusalOf(names)) === undefined;
    if (isKept) kept.push(item);
  }
  // Totals are removed also when this page lost nothing: they count items hidden on other pages.
  return lists.only(output, kept as never[]);
}
