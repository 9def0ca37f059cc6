import { Fault } from "../../../kit/fault.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { RuleKey, RuleRow } from "./rule-rows.ts";
import type { RuleTarget } from "./rules.ts";

/** What targets are sealed for: the sealed text opens in no other row. */
export const placeOf = ({ environment_id, name }: RuleKey): string => `alert_rule/${environment_id}/${name}`;

export function openTargets(keyring: Pick<Keyring, "unseal">) {
  return async (rule: RuleKey & Pick<RuleRow, "sealed">): Promise<RuleTarget[]> => {
    try {
      return JSON.parse(await keyring.unseal(placeOf(rule), rule.sealed)) as RuleTarget[];
    } catch (cause) {
      const text = `the targets of alert rule ${rule.name} cannot be read: put it again`;
      throw new Fault("failed_precondition", text, { cause });
    }
  };
}
