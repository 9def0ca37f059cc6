import type { PolicyData } from "../../lib/access.ts";
import { Field } from "../../ui/dialog.tsx";

export type TypedPolicy = Pick<PolicyData, "actions" | "resources" | "condition">;

export const emptyPolicy: TypedPolicy = { actions: "", resources: "*", condition: "" };

export function PolicyFields(props: { of: TypedPolicy; onChange: (text: TypedPolicy) => void }) {
  const { of, onChange } = props;
  return (
    <>
      <Field
        label="Actions"
        isRequired
        isCode
        value={of.actions}
        onInput={(actions) => onChange({ ...of, actions })}
        hint="With commas between, such as events:emit, runs:*"
      />
      <Field
        label="Resources"
        isRequired
        isCode
        value={of.resources}
        onInput={(resources) => onChange({ ...of, resources })}
        hint="Such as irn:svc:*:*:event:production:order.*; * is everything."
      />
      <Field
        label="Condition (CEL)"
        isCode
        rows={4}
        value={of.condition}
        onInput={(condition) => onChange({ ...of, condition })}
        hint="Over subject, request, resource and time; empty: always."
      />
    </>
  );
}
