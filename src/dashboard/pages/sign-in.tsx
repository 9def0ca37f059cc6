import { useEffect, useState } from "preact/hooks";
import { type OfferedIssuer, offeredIssuers, startOf } from "../lib/access.ts";
import { messageOf } from "../lib/api.ts";
import { address } from "../lib/router.ts";
import { refused, signIn, signInByLink } from "../lib/session.ts";
import { Button, FormError, Text } from "../ui/basics.tsx";
import { Field, useFields } from "../ui/dialog.tsx";

/** The link of the first start: its secret leaves the address before anything else happens. */
function takeLink(): string {
  const link = location.hash.slice(1);
  if (link !== "") history.replaceState(null, "", location.pathname);
  return link;
}

/** Providers of the address's org; a page without one offers those that everyone is shown. */
function Issuers() {
  const [offered, setOffered] = useState<readonly OfferedIssuer[]>([]);
  const { org, query } = address.value;
  const asked = query.get("org") ?? (org.startsWith("org_") ? org : "");
  useEffect(() => {
    // Without an answer the password is still there.
    offeredIssuers(asked).then(setOffered, () => {});
  }, [asked]);
  return (
    <>
      {offered.map((issuer) => (
        <a key={issuer.id} class="button" href={startOf(issuer)}>
          <span>
            Sign in with <Text of={issuer.name} in="span" />
          </span>
        </a>
      ))}
    </>
  );
}

/** Signs in by password, or by the link of the first start. `isInside`: in a dialog over the page. */
export function SignIn({ isInside = false }: { isInside?: boolean }) {
  const [{ email, password }, field] = useFields({ email: "", password: "" });
  const [isPlatform, setPlatform] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(refused.value);

  const attempt = async (enter: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await enter();
    } catch (failure) {
      setError(messageOf(failure));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    const link = takeLink();
    if (link !== "") void attempt(() => signInByLink(link));
  }, []);

  const form = (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(() => signIn({ email, password, isPlatform }));
      }}
    >
      <Field label="Email" type="email" isRequired {...field("email")} autoComplete="username" />
      <Field
        label="Password"
        type="password"
        isRequired
        {...field("password")}
        autoComplete="current-password"
      />
      <label class="check">
        <input type="checkbox" checked={isPlatform} onChange={() => setPlatform(!isPlatform)} />
        As a user of the platform
      </label>
      <FormError of={error} />
      <Button type="submit" kind="primary" text={isBusy ? "Signing in…" : "Sign in"} isDisabled={isBusy} />
      <Issuers />
    </form>
  );
  if (isInside) return form;
  return (
    <main class="sign-in">
      <div class="sign-in-box">
        <h1>Sign in to svc</h1>
        {form}
        <p class="hint">
          The first start prints a link that signs in once. It also names the file that holds the key and the
          dashboard password of the first user.
        </p>
      </div>
    </main>
  );
}
