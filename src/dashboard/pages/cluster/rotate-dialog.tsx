import { rest } from "../../lib/api.ts";
import { counted } from "../../lib/format.ts";
import { Button } from "../../ui/basics.tsx";
import { type ChangeEnds, Choice, Field, FormDialog, useFields } from "../../ui/dialog.tsx";

/** Secrets of the installation that people rotate, and what each is for. */
export const rotatedKinds = [
  ["jwt_secret", "Sessions of tenants' users"],
  ["platform_jwt_secret", "Sessions of the platform's users"],
  ["signing_key", "Signatures of what the server sends"],
  ["master_key", "Master key"],
] as const;

const secretBytes = 32;

const madeUp = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(secretBytes)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

/** Replaces a secret of the installation on every node. */
export function RotateDialog(ends: ChangeEnds) {
  const [{ kind, value }, field] = useFields({ kind: "jwt_secret", value: "" });
  const submit = async () => {
    const body = { kind, new_value: value };
    const answer = await rest<{ confirmed_nodes: string[] }>("/api/v1/cluster/rotate-token", { body });
    return `Rotated; ${counted(answer.confirmed_nodes.length, "node")} already on it`;
  };
  return (
    <FormDialog
      title="Rotate a secret of the installation"
      submit="Rotate"
      isDangerous
      onSubmit={submit}
      {...ends}
    >
      <p>Every node uses the new one from now on. What the old one signed stays good for a day.</p>
      <Choice label="Secret" {...field("kind")} options={rotatedKinds} />
      <Field
        label="New value"
        type="password"
        autoComplete="new-password"
        isRequired
        {...field("value")}
        hint="It is never shown again."
      />
      <div>
        <Button onClick={() => field("value").onInput(madeUp())}>Make one up</Button>
      </div>
    </FormDialog>
  );
}
