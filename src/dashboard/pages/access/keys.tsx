import { useState } from "preact/hooks";
import {
  type AccessKeyData,
  type AccessScope,
  createKey,
  deleteKey,
  listKeys,
  type RoleData,
  rotateKey,
  setKeyRoles,
} from "../../lib/access.ts";
import { dateTime, instantOf, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded, useTick } from "../../lib/hooks.ts";
import { environments, may } from "../../lib/session.ts";
import { Button, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, Choice, Confirm, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { shownEnvironment } from "../quotas.tsx";
import { MadeKey } from "./made-key.tsx";
import { RoleChoice, RoleTags, readRoles } from "./users.tsx";

interface AskedOfKey {
  deed: "rotate" | "roles" | "delete";
  key: AccessKeyData;
}

/** A key that ends within this is shown as ending. */
const endsSoonMs = 7 * 86_400_000;

export function Keys({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfKey>();
  const [made, setMade] = useState("");
  const read = useLoaded((signal) => listKeys(scope, signal), [scope]);
  const { value: roles = [] } = useLoaded((signal) => readRoles(scope, signal), [scope]);
  useFollowed(read.reload, { list: "keys" });
  const manages = may(scope.manages.keys);
  const done = { onDone: read.reload, onClose: () => setAsked(undefined) };
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Opener kind="primary" icon="plus" text="New key…">
            {(onClose) => <KeyDialog {...{ scope, roles, onClose }} onMade={setMade} onDone={read.reload} />}
          </Opener>
        )}
      </div>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Key",
            of: ({ name, key_prefix }) => (
              <>
                <Text of={name} />
                <code class="under">{`${key_prefix}…`}</code>
              </>
            ),
          },
          { name: "Roles", of: ({ role_ids }) => <RoleTags of={role_ids} roles={roles} /> },
          { name: "Environment", of: ({ environment_id }) => <Text of={environmentName(environment_id)} /> },
          { name: "Used", isNumber: true, of: ({ last_used_at }) => <When at={last_used_at} /> },
          { name: "Ends", of: ({ expires_at }) => <Ends at={instantOf(expires_at)} /> },
          {
            name: "",
            of: (key) =>
              manages && (
                <span class="row-actions">
                  <Button icon="refresh" text="Rotate…" onClick={() => setAsked({ deed: "rotate", key })} />
                  <Button onClick={() => setAsked({ deed: "roles", key })}>Roles…</Button>
                  <Button icon="trash" text="Revoke…" onClick={() => setAsked({ deed: "delete", key })} />
                </span>
              ),
          },
        ]}
        empty="No keys"
        docs="access"
      />
      {asked?.deed === "roles" && <KeyRoles found={asked.key} roles={roles} {...done} />}
      {asked?.deed === "rotate" && (
        <Confirm
          title={`Rotate ${plain(asked.key.name)}?`}
          verb="Rotate"
          act={async () => setMade((await rotateKey(asked.key.id)).key)}
          done="Key rotated"
          {...done}
        >
          <p>Every node refuses the old text at once: whoever uses it needs the new one.</p>
        </Confirm>
      )}
      {asked?.deed === "delete" && (
        <Confirm
          title={`Revoke ${plain(asked.key.name)}?`}
          verb="Revoke the key"
          act={() => deleteKey(asked.key.id)}
          done="Key revoked"
          {...done}
        >
          <p>Every node refuses it at once.</p>
        </Confirm>
      )}
      {made !== "" && <MadeKey text={made} onClose={() => setMade("")} />}
    </>
  );
}

const environmentName = (id: string | undefined): string =>
  id === undefined ? "–" : (environments.value.find((one) => one.id === id)?.name ?? id);

function Ends({ at }: { at: number | undefined }) {
  const now = useTick(60_000, at !== undefined);
  if (at === undefined) return <span class="faint">never</span>;
  if (at <= now) return <Status of="expired" />;
  return <span class={at - now < endsSoonMs ? "warn" : ""}>{dateTime(at)}</span>;
}

const lives = [
  ["", "Without end"],
  ["1d", "A day"],
  ["30d", "30 days"],
  ["90d", "90 days"],
  ["365d", "A year"],
] as const;

function KeyDialog(
  props: ChangeEnds & { scope: AccessScope; roles: readonly RoleData[]; onMade: (text: string) => void },
) {
  const { scope, roles, onMade, ...ends } = props;
  const [typed, field] = useFields({ name: "", environment: shownEnvironment(), expiresIn: "90d" });
  const [chosen, setChosen] = useState<string[]>([]);
  const submit = async () => {
    const { name, environment, expiresIn } = typed;
    const made = await createKey(scope, {
      ...{ name, role_ids: chosen },
      ...(!scope.isPlatform && { env_id: environment }),
      ...(expiresIn && { expires_in: expiresIn }),
    });
    onMade(made.key);
  };
  return (
    <FormDialog title="New key" submit="Make" onSubmit={submit} {...ends}>
      <Field label="Name" isRequired {...field("name")} hint="Who or what uses it" />
      {!scope.isPlatform && (
        <Choice
          label="Environment"
          {...field("environment")}
          options={environments.value.map(({ id, name }) => [id, name] as const)}
        />
      )}
      <RoleChoice roles={roles} chosen={chosen} onChange={setChosen} />
      <Choice label="Ends after" {...field("expiresIn")} options={lives} />
    </FormDialog>
  );
}

function KeyRoles(props: ChangeEnds & { found: AccessKeyData; roles: readonly RoleData[] }) {
  const { found, roles, ...ends } = props;
  const [chosen, setChosen] = useState<string[]>(found.role_ids);
  const submit = async () => {
    await setKeyRoles(found.id, chosen);
    return `Roles of ${plain(found.name)} changed`;
  };
  return (
    <FormDialog title={`Roles of ${plain(found.name)}`} submit="Save" onSubmit={submit} {...ends}>
      <RoleChoice roles={roles} chosen={chosen} onChange={setChosen} />
    </FormDialog>
  );
}
