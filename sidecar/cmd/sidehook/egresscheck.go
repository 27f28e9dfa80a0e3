package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/sidecar/config"
)

// egressCheckOptions are the flags of `egress check`.
type egressCheckOptions struct {
	config   configFlag
	format   outputFlag
	endpoint string
}

func newEgressCheck(std stdio) *cobra.Command {
	var o egressCheckOptions
	c := &cobra.Command{
		Use:   "check URL",
		Short: "Say whether the address filter lets a URL through, and why",
		Long: `Say whether the address filter of a configuration lets a URL through, and why.

The URL is read and its name resolved as an attempt would do it, here and now: on another host the name servers may
answer otherwise. Nothing is connected to. Exit code 0 if an attempt would be made (under REPORT also where it would be
refused otherwise), 1 if the URL or an address of its name is refused, 3 if the name cannot be resolved.

Path and query of the URL are not printed: they may hold a secret.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			return egressCheck(c.Context(), std, o, a[0])
		},
	}
	o.config.register(c)
	o.format.register(c)
	c.Flags().StringVar(&o.endpoint, "endpoint", "", "judge by the filter of the configuration's endpoint `ID` (default: egress.filter)")
	return c
}

// Reasons beside the verdicts of the filter: the name has no address, or nobody could tell.
const (
	reasonNoSuchHost     = "no_such_host"
	reasonResolverFailed = "resolver_failed"
)

// egressAnswer is what `egress check` found.
type egressAnswer struct {
	// URL is scheme, host and port; empty where the URL is refused before it is resolved.
	URL       string            `json:"url"`
	Addresses []netguard.Judged `json:"addresses"`
	// ByProxy: the name is resolved by the forward proxy, so there are no addresses.
	ByProxy bool `json:"by_proxy"`
	// Allowed: an attempt would be made.
	Allowed bool `json:"allowed"`
	// Reported: under REPORT it is allowed for that reason only.
	Reported bool `json:"reported"`
	// Reason is a verdict or one of the reasons above; empty where all is well. Detail says it for people.
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func egressCheck(ctx context.Context, std stdio, o egressCheckOptions, url string) error {
	f, err := o.filter()
	if err != nil {
		return err
	}
	a, err := askFilter(ctx, f, url)
	if err != nil {
		return err
	}
	if o.format.structured() {
		err = o.format.print(std.out, a)
	} else {
		err = a.print(std.out)
	}
	switch {
	case err != nil:
		return err
	case a.Reason == reasonNoSuchHost || a.Reason == reasonResolverFailed:
		return &exitError{code: exitReach}
	case !a.Allowed:
		return no(nil)
	}
	return nil
}

// filter is the filter that is asked about. Secrets are not needed for it, and who asks may not be able to read them.
func (o egressCheckOptions) filter() (*netguard.Filter, error) {
	c, err := o.config.load(config.WithoutSecrets())
	if err != nil {
		return nil, err
	}
	if c.Egress == nil {
		return nil, usagef("%s has no egress section, so there is no filter", c.Path)
	}
	if o.endpoint == "" {
		return c.Egress.Filter, nil
	}
	i := slices.IndexFunc(c.Egress.Endpoints, func(e *egress.Endpoint) bool { return e.ID == o.endpoint })
	if i < 0 {
		return nil, usagef("%s has no endpoint %q; those of the API are judged by egress.filter: leave --endpoint out", c.Path, o.endpoint)
	}
	return c.Egress.Endpoints[i].Filter, nil
}

// askFilter goes with a URL as far as an attempt would, short of connecting. The error is one of asking, not of the URL.
func askFilter(ctx context.Context, f *netguard.Filter, url string) (*egressAnswer, error) {
	a := &egressAnswer{Addresses: []netguard.Judged{}, ByProxy: f.ResolvesByProxy()}
	t, err := f.Check(url)
	if r, refused := errors.AsType[*netguard.Refusal](err); refused {
		a.Reason, a.Detail = r.Verdict.String(), r.Error()
		return a, nil
	} else if err != nil {
		return nil, err
	}
	a.URL = t.Scheme + "://" + net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
	judged, refusal, err := f.Explain(ctx, t)
	if e, ok := errors.AsType[*netguard.ResolveError](err); ok {
		a.Reason, a.Detail = reasonResolverFailed, e.Error()
		if e.NotFound {
			a.Reason = reasonNoSuchHost
		}
		return a, nil
	} else if err != nil {
		return nil, err
	}
	a.Addresses = append(a.Addresses, judged...)
	a.Allowed = true
	if refusal != nil {
		a.Reason, a.Detail = refusal.Verdict.String(), refusal.Error()
		a.Reported = !f.Enforces(refusal.Verdict)
		a.Allowed = a.Reported
	}
	return a, nil
}

// print writes the steps, the answer, and the reason.
func (a *egressAnswer) print(w io.Writer) error {
	if a.URL != "" {
		rows := [][]string{{"url", a.URL, "read"}}
		for _, j := range a.Addresses {
			rows = append(rows, []string{"address", j.Addr.String(), j.Verdict.String()})
		}
		if a.ByProxy && len(a.Addresses) == 0 {
			rows = append(rows, []string{"address", "left to the forward proxy (by_name)", "not judged"})
		}
		if err := table(w, []string{"STEP", "SUBJECT", "VERDICT"}, rows); err != nil {
			return err
		}
	}
	var line string
	switch {
	case a.Reported:
		line = "allowed by REPORT, would be refused reason=" + a.Reason
	case a.Allowed:
		line = "allowed"
	case a.Reason == reasonNoSuchHost || a.Reason == reasonResolverFailed:
		line = "not resolved reason=" + a.Reason
	default:
		line = "refused reason=" + a.Reason
	}
	if a.Detail != "" {
		line += "\n" + printable(a.Detail)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
