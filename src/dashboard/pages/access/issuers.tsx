import { useState } from "preact/hooks";
import {
  type AccessScope,
  changeIssuer,
  createIssuer,
  deleteIssuer,
  getSignIn,
  type IssuerData,
  listIssuers,
  setPasswords,
} from "../../lib/access.ts";
import { plain } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { may } from "../../lib/session.ts";
import { Button, Text } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Check,
  Confirm,
  ConfirmOpener,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

interface AskedOfIssuer {
  deed: "edit" | "delete";
  issuer: IssuerData;
}

/** OpenID providers by which people sign in, and whether passwords do. */
export function Issuers({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfIssuer>();
  const read = useLoaded((signal) => listIssuers(scope, signal), [scope]);
  const { value: signIn, reload } = useLoaded((signal) => getSignIn(scope, signal), [scope]);
  const manages = may(scope.manages.users);
  const done = { onDone: read.reload, onClose: () => setAsked(undefined) };
  const areOn = signIn?.passwords ?? true;
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Opener kind="primary" icon="plus" text="New issuer…">
            {(onClose) => <IssuerDialog scope={scope} onClose={onClose} onDone={read.reload} />}
          </Opener>
        )}
        {manages && signIn && (
          <ConfirmOpener
            text={areOn ? "Passwords off…" : "Passwords on…"}
            title={areOn ? "Switch passwords off?" : "Switch passwords on?"}
            verb={areOn ? "Switch off" : "Switch on"}
            isDangerous={areOn}
            act={() => setPasswords(scope, !areOn)}
            done={areOn ? "Passwords are off" : "Passwords are on"}
            onDone={reload}
          >
            <p>
              {areOn
                ? "People then sign in by an issuer alone; sessions go on."
                : "People may sign in by both."}
            </p>
          </ConfirmOpener>
        )}
        {!areOn && <span class="tag">Passwords are off</span>}
      </div>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Issuer",
            of: ({ name, issuer }) => (
              <>
                <Text of={name} />
                <Text of={issuer} in="span" class="under" />
              </>
            ),
          },
          {
            name: "Redirect URI",
            of: ({ callback_path }) => <code>{`${location.origin}${callback_path}`}</code>,
          },
          {
            name: "Roles",
            of: (issuer) =>
              (mappingText(issuer) || "none")
                .split("\n")
                .map((line) => <Text key={line} of={line} in="span" class="slot" />),
          },
          { name: "Status", of: ({ is_enabled }) => <Status of={is_enabled ? "active" : "inactive"} /> },
          {
            name: "",
            of: (issuer) =>
              manages && (
                <span class="row-actions in-line">
                  <Button icon="edit" text="Edit…" onClick={() => setAsked({ deed: "edit", issuer })} />
                  <Button icon="trash" text="Delete…" onClick={() => setAsked({ deed: "delete", issuer })} />
                </span>
              ),
          },
        ]}
        empty="No issuers"
        says="With one, people sign in by your company's OpenID provider, and their groups give them roles."
        docs="sign-in"
      />
      {asked?.deed === "edit" && <IssuerDialog scope={scope} issuer={asked.issuer} {...done} />}
      {asked?.deed === "delete" && (
        <Confirm
          title={`Delete ${plain(asked.issuer.name)}?`}
          verb="Delete the issuer"
          act={() => deleteIssuer(scope, asked.issuer.id)}
          done="Issuer deleted"
          {...done}
        >
          <p>Nobody signs in by it any more. Its users and their sessions stay.</p>
        </Confirm>
      )}
    </>
  );
}

/** A pair a line: `engineers = developer`. */
const mappingText = ({ roles }: Pick<IssuerData, "roles">): string =>
  roles.map(({ value, role, role_id }) => `${value} = ${role ?? role_id}`).join("\n");

const mappingOf = (text: string): { value: string; role: string }[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.lastIndexOf("=");
      return { value: line.slice(0, Math.max(at, 0)).trim(), role: line.slice(at + 1).trim() };
    });

function IssuerDialog({ scope, issuer, ...ends }: ChangeEnds & { scope: AccessScope; issuer?: IssuerData }) {
  const [typed, field] = useFields({
    ...{ name: issuer?.name ?? "", url: issuer?.issuer ?? "", clientId: issuer?.client_id ?? "", secret: "" },
    ...{ claim: issuer?.roles_claim ?? "groups", roles: issuer ? mappingText(issuer) : "" },
  });
  const [isEnabled, setEnabled] = useState(issuer?.is_enabled ?? true);
  const [endsThere, setEndsThere] = useState(issuer?.ends_at_provider ?? false);
  const submit = async () => {
    const { name, url, clientId, secret, claim, roles } = typed;
    const body = {
      ...{ name, client_id: clientId, roles_claim: claim, roles: mappingOf(roles), is_enabled: isEnabled },
      ...{ ends_at_provider: endsThere, ...(secret !== "" && { client_secret: secret }) },
    };
    await (issuer ? changeIssuer(scope, issuer.id, body) : createIssuer(scope, { ...body, issuer: url }));
    return `${plain(name)} ${issuer ? "changed" : "may be signed in with"}`;
  };
  return (
    <FormDialog
      title={issuer ? `Edit ${plain(issuer.name)}` : "New issuer"}
      submit={issuer ? "Save" : "Make"}
      onSubmit={submit}
      {...ends}
    >
      <Field label="Name" isRequired {...field("name")} hint="What the button of the sign-in page says" />
      {!issuer && <Field label="URL" isRequired {...field("url")} hint="As the provider's tokens spell it" />}
      <Field label="Client" isRequired {...field("clientId")} />
      <Field
        label="Client secret"
        type="password"
        {...field("secret")}
        {...(issuer?.has_secret && { hint: "Empty: it stays." })}
      />
      <Field label="Claim with roles" isRequired {...field("claim")} />
      <Field
        label="Roles"
        rows={4}
        isCode
        {...field("roles")}
        hint="A pair a line: engineers = developer; * is everyone"
      />
      <Check label="People may sign in by it" isChecked={isEnabled} onChange={setEnabled} />
      <Check label="Who signs out here signs out there" isChecked={endsThere} onChange={setEndsThere} />
    </FormDialog>
  );
}
