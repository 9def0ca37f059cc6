import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import type { DefinitionsCache } from "./definition.ts";
import { readDefinitions } from "./rows.ts";

/** Of an environment that this node knows, nothing is read. */
export const functionsCheck = (
  store: Store,
  definitions: Pick<DefinitionsCache, "known">,
): IntegrityCheck => ({
  name: "functions.unread",
  about:
    "Functions of which the definition cannot be read: nothing starts them until they are registered again.",
  async run(environmentId) {
    const records =
      definitions.known(environmentId)?.unread ??
      (await readDefinitions(store, environmentId))?.records ??
      [];
    return violationsOf(
      records.flatMap(({ isUnread, definition: { id }, updatedAt }) =>
        isUnread ? { id, at: updatedAt } : [],
      ),
    );
  },
});
