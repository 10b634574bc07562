import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { createBrowserRouter, RouterProvider } from "react-router";
import { ApiError, session } from "./api/client";
import { I18nProvider, keepLanguage, type Language, type Loaded, loadMessages, translator } from "./i18n";
import { routes } from "./router";
import { resolver, theme } from "./theme";
import { nonce } from "./ui/nonce";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: true,
      // What the server refused is refused again; what did not answer is asked twice more.
      retry: (count, error) => count < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 502),
    },
  },
});

export function App({ first }: { first: { language: Language; messages: Loaded } }) {
  const [words, setWords] = useState(first);
  const router = useMemo(() => createBrowserRouter(routes), []);
  useEffect(() => {
    document.documentElement.lang = words.language;
    session.setLanguage(words.language);
  }, [words]);
  const value = useMemo(
    () => ({
      ...translator(words.language, words.messages),
      setLanguage: (language: Language) => {
        keepLanguage(language);
        void loadMessages(language).then((messages) => setWords({ language, messages }));
      },
    }),
    [words],
  );
  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={resolver}
      defaultColorScheme="auto"
      getStyleNonce={() => nonce}
    >
      <I18nProvider value={value}>
        <QueryClientProvider client={queries}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </I18nProvider>
    </MantineProvider>
  );
}
