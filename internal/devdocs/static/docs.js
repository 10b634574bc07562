// The script of the developer portal. It loads before the page is painted, sets the
// colours, and does the rest once the page is there. All texts come from the page.
(() => {
  "use strict";
  const root = document.documentElement;
  const schemeKey = "mantine-color-scheme-value"; // the console's own: both look the same
  const setScheme = () => {
    let stored = null;
    try {
      stored = localStorage.getItem(schemeKey);
    } catch { /* the browser keeps nothing: the system's colours, then */ }
    if (stored === "dark" || stored === "light") root.dataset.scheme = stored;
    else delete root.dataset.scheme;
  };
  setScheme();
  root.dataset.js = "";

  let words = {};
  const say = (key, ...values) => values.reduce((text, v, i) => text.replaceAll(`{${i}}`, v), words[key] ?? key);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const element = (name, properties = {}, ...children) => {
    const e = Object.assign(document.createElement(name), properties);
    e.append(...children);
    return e;
  };

  // The reader's credential lives in this tab, and in nothing else.
  const held = {
    get: () => {
      try {
        return JSON.parse(sessionStorage.getItem("gatehouse-devdocs") || "{}");
      } catch {
        return {};
      }
    },
    set: (to) => sessionStorage.setItem("gatehouse-devdocs", JSON.stringify(to)),
  };
  const described = () => {
    const { kind, secret } = held.get();
    if (!secret) return say("session");
    return kind === "token" ? say("token") : say("key", `${secret.slice(0, 14)}…`);
  };

  // call sends a request with the reader's credential; without one the console's cookie counts.
  const call = (method, target, { body, media, headers = {}, bearer = false, environment = false, bare = false, signal } = {}) => {
    const own = held.get();
    const sent = new Headers(headers);
    if (!bare && own.secret) {
      if (own.kind === "token" || bearer) sent.set("Authorization", `Bearer ${own.secret}`);
      else sent.set("X-API-Key", own.secret);
    }
    if (!bare && own.tenant) sent.set("X-Tenant-ID", own.tenant);
    if (!bare && environment && own.environment) sent.set("X-Environment", own.environment);
    if (body !== undefined) sent.set("Content-Type", media || "application/json");
    const credentials = bare || own.secret ? "omit" : "same-origin";
    return fetch(target, { method, headers: sent, body, credentials, signal, cache: "no-store", redirect: "follow" });
  };

  const problem = async (res) => {
    const text = await res.text();
    try {
      const body = JSON.parse(text);
      return `${res.status} ${body.message || body.detail || body.error_description || body.error || ""}`;
    } catch {
      return `${res.status} ${text.slice(0, 200)}`;
    }
  };

  // What stands in details is opened when its address is followed.
  const openTarget = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };

  const setUpFrame = () => {
    const menu = document.querySelector("button.menu");
    menu.addEventListener("click", () => {
      const open = menu.getAttribute("aria-expanded") !== "true";
      menu.setAttribute("aria-expanded", String(open));
      document.getElementById("contents").classList.toggle("open", open);
    });
    document.querySelector("button.scheme").addEventListener("click", () => {
      const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      localStorage.setItem(schemeKey, dark ? "light" : "dark");
      setScheme();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      event.preventDefault();
      const nav = document.getElementById("contents");
      nav.classList.add("open");
      menu.setAttribute("aria-expanded", "true");
      document.getElementById("filter").focus();
    });
    addEventListener("hashchange", openTarget);
  };

  // A filter shows the rows that have all its words, and the groups that have such rows.
  const filter = (input, scope, status) => {
    const rows = all("[data-op]", scope).filter((row) => !row.matches(".operation"));
    const counted = new Set(rows.map((row) => row.dataset.op)).size;
    const groups = all("details.area, section.group", scope).map((group) => ({ group, open: group.open }));
    const apply = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = new Set();
      for (const row of rows) {
        row.hidden = !wanted.every((word) => row.dataset.op.includes(word));
        if (!row.hidden) fits.add(row.dataset.op);
      }
      for (const { group, open } of groups) {
        const some = all("[data-op]", group).some((row) => !row.hidden);
        group.hidden = !some;
        if (group.tagName === "DETAILS") group.open = wanted.length > 0 ? some : open;
      }
      if (status) status.textContent = wanted.length === 0 ? "" : fits.size === 0 ? say("none") : say("found", fits.size, counted);
    };
    input.addEventListener("input", apply);
    if (input.value) apply(); // the browser kept it over a reload
  };

  const setUpCopy = () => {
    document.addEventListener("click", async (event) => {
      const button = event.target.closest("button.copy");
      if (!button) return;
      const before = button.dataset.label ?? button.textContent;
      button.dataset.label = before;
      const text = button.parentElement.querySelector("pre").textContent;
      try {
        await navigator.clipboard.writeText(text);
      } catch { // without HTTPS the old way is the only one
        const area = element("textarea", { value: text, className: "offscreen" });
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      button.textContent = say("copied");
      setTimeout(() => { button.textContent = before; }, 2000);
    });
  };

  // Samples show one language at a time, the same everywhere in the tab.
  const setUpSamples = () => {
    const sets = all("[data-samples]");
    const show = (wanted) => {
      sessionStorage.setItem("gatehouse-devdocs-sample", wanted);
      for (const set of sets) {
        const sections = all("[data-sample]", set);
        const chosen = sections.some((s) => s.dataset.sample === wanted) ? wanted : sections[0].dataset.sample;
        for (const s of sections) s.hidden = s.dataset.sample !== chosen;
        for (const b of all(".choices button", set)) b.setAttribute("aria-pressed", String(b.value === chosen));
      }
    };
    for (const set of sets) {
      const choices = element("p", { className: "choices" });
      for (const s of all("[data-sample]", set)) {
        const button = element("button", { type: "button", value: s.dataset.sample, textContent: s.querySelector("h4").textContent });
        button.addEventListener("click", () => show(button.value));
        choices.append(button);
      }
      set.prepend(choices);
    }
    if (sets.length > 0) show(sessionStorage.getItem("gatehouse-devdocs-sample") || "curl");
  };

  const showWho = () => {
    for (const e of all(".who-now")) e.textContent = described();
    for (const e of all(".try-as")) e.textContent = say("as", described());
    for (const form of all(".who-form")) {
      const own = held.get();
      form.kind.value = own.kind === "token" ? "token" : "key";
      form.secret.value = own.secret || "";
      form.tenant.value = own.tenant || "";
      form.environment.value = own.environment || "";
    }
  };
  const use = (change) => {
    held.set({ ...held.get(), ...change });
    showWho();
  };

  const setUpWho = () => {
    for (const form of all(".who-form")) {
      const answer = form.querySelector(".who-answer");
      const keep = () => use({ kind: form.kind.value, secret: form.secret.value.trim(), tenant: form.tenant.value.trim(), environment: form.environment.value });
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        keep();
        answer.textContent = say("kept");
      });
      form.querySelector(".who-forget").addEventListener("click", () => {
        held.set({});
        showWho();
        answer.textContent = say("forgotten");
      });
      form.querySelector(".who-ask").addEventListener("click", async () => {
        keep();
        answer.textContent = say("sending");
        try {
          const res = await call("GET", "/api/v1/auth/me");
          if (!res.ok) {
            answer.textContent = say("nobody", await problem(res));
            return;
          }
          const me = await res.json();
          answer.textContent = say("me", me.username || me.name || me.id, me.tenant_id || me.tenant || "");
        } catch (error) {
          answer.textContent = say("failed", error.message);
        }
      });
    }
    showWho();
  };

  // sure asks before a request that destroys something, or that changes production.
  const sure = (request) =>
    new Promise((resolve) => {
      const own = held.get();
      const send = element("button", { type: "submit", value: "yes", className: "danger", textContent: say("askSend") });
      const not = element("button", { type: "submit", value: "", textContent: say("askNot"), autofocus: true });
      const text = element("p", { className: "lines", textContent: say("sure", request, own.tenant || say("own"), own.environment || say("unnamed")), id: "sure-text" });
      const form = element("form", { method: "dialog" }, text, element("p", { className: "buttons" }, not, " ", send));
      const dialog = element("dialog", {}, form);
      dialog.setAttribute("aria-labelledby", "sure-text");
      dialog.addEventListener("close", () => {
        dialog.remove();
        resolve(dialog.returnValue === "yes");
      });
      document.body.append(dialog);
      dialog.showModal();
    });

  const interesting = ["content-type", "x-request-id", "etag", "location", "retry-after", "allow", "www-authenticate", "deprecation", "sunset", "x-decision-id",
    "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "idempotency-replayed"];

  // readBody reads what is text, and no more than people read; streams show as they come.
  const readBody = async (res, code) => {
    const limit = 200000;
    const media = res.headers.get("content-type") || "";
    if (!res.body) return;
    const isText = media === "" || /json|text|xml|yaml|javascript|csv|urlencoded/.test(media);
    const reader = res.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (isText) text += decoder.decode(value, { stream: true });
      if (/event-stream|ndjson/.test(media)) code.textContent = text;
      if (text.length > limit) {
        text = text.slice(0, limit) + "\n" + say("cut");
        await reader.cancel();
        break;
      }
    }
    if (!isText) text = say("bytes", size);
    else if (/json/.test(media)) {
      try {
        text = JSON.stringify(JSON.parse(text), null, 2);
      } catch { /* it is shown as it came */ }
    }
    code.textContent = text || say("empty");
  };

  const targetOf = (form) => {
    let path = form.dataset.path;
    const query = new URLSearchParams();
    const headers = {};
    for (const field of all("[data-in]", form)) {
      const { name, value } = field;
      if (field.dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
      else if (value === "") continue;
      else if (field.dataset.in === "query") query.set(name, value);
      else headers[name] = value;
    }
    const asked = query.toString();
    return { target: asked ? `${path}?${asked}` : path, headers, named: query.has("environment") };
  };

  const setUpTry = () => {
    for (const form of all(".try form")) {
      const outcome = form.parentElement.querySelector(".outcome");
      const line = outcome.querySelector(".outcome-line");
      const list = outcome.querySelector(".outcome-headers");
      const code = outcome.querySelector("code");
      const stop = form.querySelector(".try-stop");
      let running;
      stop.addEventListener("click", () => running?.abort());
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const { method, auth, reach } = form.dataset;
        const { target, headers, named } = targetOf(form);
        const production = held.get().environment === "production" || /[?&]environment=production\b|\/production\//.test(target);
        const body = form.body?.value.trim() ? form.body.value : undefined;
        const media = form.body?.dataset.media;
        outcome.hidden = false;
        list.replaceChildren();
        code.textContent = "";
        if (body !== undefined && media === "application/json") {
          try {
            JSON.parse(body);
          } catch (error) {
            line.textContent = say("badjson", error.message);
            return;
          }
        }
        if ((method === "DELETE" || (method !== "GET" && production)) && !(await sure(`${method} ${target}`))) {
          outcome.hidden = true;
          return;
        }
        line.textContent = say("sending");
        stop.hidden = false;
        running = new AbortController();
        const began = performance.now();
        try {
          const res = await call(method, target, {
            body, media, headers, bearer: auth === "bearer", environment: reach === "environment" && !named, bare: auth === "public", signal: running.signal,
          });
          line.textContent = say("took", `${res.status} ${res.statusText}`.trim(), Math.round(performance.now() - began));
          line.className = `outcome-line ${res.ok ? "good" : "bad"}`;
          for (const name of interesting) {
            const value = res.headers.get(name);
            if (value) list.append(element("dt", {}, element("code", { textContent: name })), element("dd", { textContent: value }));
          }
          await readBody(res, code);
        } catch (error) {
          line.className = "outcome-line bad";
          line.textContent = error.name === "AbortError" ? say("stopped") : say("failed", error.message);
        } finally {
          stop.hidden = true;
        }
      });
    }
  };

  // issued shows a credential once, with a button to copy it.
  const issued = (box, text, secret, scopes) => {
    const pre = element("pre", { tabIndex: 0 }, element("code", { textContent: secret }));
    const copy = element("button", { type: "button", className: "copy", textContent: words.copy ?? document.querySelector("button.copy").textContent });
    box.replaceChildren(element("p", { textContent: text }), element("div", { className: "code" }, pre, copy));
    if (scopes?.length) box.append(element("p", { textContent: say("scopes", scopes.join(", ")) }));
  };

  const steps = {
    login: (form) => call("POST", "/api/v1/auth/login", { body: JSON.stringify({ username: form.username.value, password: form.password.value }), bare: true }),
    key: (form) => {
      const body = { name: form.elements.name.value, scopes: all("[name=scopes]:checked", form).map((box) => box.value) };
      if (form.days.value) body.expires_at = new Date(Date.now() + form.days.value * 86400000).toISOString();
      return call("POST", `/api/v1/developer-portal/api-keys/${form.environment.value}/generate`, { body: JSON.stringify(body) });
    },
    token: () => call("POST", "/api/v1/developer-portal/token", { body: "{}" }),
  };

  const setUpBootstrap = () => {
    for (const form of all("form.bootstrap")) {
      const box = form.querySelector(".issued");
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        box.textContent = say("sending");
        try {
          const res = await steps[form.dataset.step](form);
          if (!res.ok) {
            box.textContent = await problem(res);
            return;
          }
          const got = await res.json();
          if (form.dataset.step === "key") {
            use({ kind: "key", secret: got.key, environment: got.environment || form.environment.value });
            issued(box, say("issuedKey"), got.key, got.scopes);
          } else {
            use({ kind: "token", secret: got.access_token });
            if (form.dataset.step === "token") issued(box, say("issuedToken"), got.access_token);
            else box.textContent = say("signedIn");
            if (form.password) form.password.value = "";
          }
        } catch (error) {
          box.textContent = say("failed", error.message);
        }
      });
    }
  };

  // Signatures are computed here: neither secret nor body leaves the page.
  const hmac = async (secret, text) => {
    const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text)));
  };
  const hex = (bytes) => [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
  const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

  // withoutSignature removes the member signature from a JSON object and leaves every
  // other byte as it is: a parse and a print would change numbers and escapes.
  const withoutSignature = (body) => {
    const signature = JSON.parse(body).signature;
    if (typeof signature !== "string") return null;
    const rest = body.replace(/,\s*"signature"\s*:\s*"(?:[^"\\]|\\.)*"(?=\s*\}\s*$)/, "");
    if (rest !== body) return { signature, rest };
    const first = body.replace(/"signature"\s*:\s*"(?:[^"\\]|\\.)*"\s*,?\s*/, "");
    return { signature, rest: first };
  };

  const expectedSignature = async (form) => {
    const secret = new TextEncoder().encode(form.secret.value);
    const body = form.body.value;
    switch (form.scheme.value) {
      case "member": {
        const parts = withoutSignature(body);
        if (!parts) throw new Error(say("noSignature"));
        return { came: parts.signature.trim(), expected: `sha256=${hex(await hmac(secret, parts.rest))}` };
      }
      case "standard": {
        let key = secret;
        if (form.secret.value.startsWith("whsec_")) {
          try {
            key = Uint8Array.from(atob(form.secret.value.slice(6)), (c) => c.charCodeAt(0));
          } catch { /* it is no base64: the secret is the key as it stands */ }
        }
        const expected = `v1,${base64(await hmac(key, `${form.id.value}.${form.timestamp.value}.${body}`))}`;
        const came = form.signature.value.trim().split(/\s+/);
        return { came: came.includes(expected) ? expected : came[0], expected };
      }
      default:
        return { came: form.signature.value.trim(), expected: `sha256=${hex(await hmac(secret, body))}` };
    }
  };

  const setUpChecker = () => {
    for (const form of all("form.checker")) {
      const verdict = form.querySelector(".verdict");
      const shown = form.querySelector(".code");
      const arrange = () => {
        for (const e of all("[data-for]", form)) e.hidden = !e.dataset.for.split(" ").includes(form.scheme.value);
      };
      form.addEventListener("change", arrange);
      arrange();
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        shown.hidden = true;
        verdict.className = "verdict bad";
        if (!globalThis.crypto?.subtle) {
          verdict.textContent = say("insecure");
          return;
        }
        try {
          const { came, expected } = await expectedSignature(form);
          const right = came === expected;
          verdict.className = `verdict ${right ? "good" : "bad"}`;
          verdict.textContent = say(right ? "good" : "bad");
          shown.hidden = false;
          shown.querySelector("code").textContent = expected;
        } catch (error) {
          verdict.textContent = error.message;
        }
      });
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    words = JSON.parse(document.body.dataset.words);
    setUpFrame();
    setUpCopy();
    setUpSamples();
    const main = document.getElementById("main");
    filter(document.getElementById("filter"), document.body, document.getElementById("found"));
    const errors = document.getElementById("errors-filter");
    if (errors) filter(errors, main);
    setUpWho();
    setUpTry();
    setUpBootstrap();
    setUpChecker();
    openTarget();
    root.dataset.ready = "";
  });
})();
