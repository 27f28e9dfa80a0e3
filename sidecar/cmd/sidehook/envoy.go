package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/sidecar/config"
	"github.com/sidehook/sidehook/sidecar/envoyconf"
)

// envoyOptions are the flags of `envoy`.
type envoyOptions struct {
	config    configFlag
	bootstrap bool
	listen    string
	app       string
	admin     string
}

func newEnvoy(std stdio) *cobra.Command {
	var o envoyOptions
	c := &cobra.Command{
		Use:   "envoy",
		Short: "Print the Envoy configuration that goes with a sidehook configuration",
		Long: `Print the Envoy configuration that goes with a sidehook configuration, as YAML. No secret is read.

Without --bootstrap it is a document with the keys http_filters, access_log, clusters, typed_per_filter_config (by source)
and hcm, each to be pasted under the same name of an existing Envoy. With --bootstrap it is a whole Envoy that runs:
  sidehook envoy --bootstrap > envoy.yaml && envoy -c envoy.yaml`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range []string{"listen", "app", "envoy-admin"} {
				if c.Flags().Changed(name) && !o.bootstrap {
					return usagef("--%s is for --bootstrap: the parts for an existing Envoy hold no such address", name)
				}
			}
			return envoy(c.Context(), std, o)
		},
	}
	o.config.register(c)
	f := c.Flags()
	f.BoolVar(&o.bootstrap, "bootstrap", false, "print a whole Envoy that runs instead of parts to be pasted into one")
	f.StringVar(&o.listen, "listen", envoyconf.DefaultListen, "`ADDR` where the whole Envoy takes requests")
	f.StringVar(&o.app, "app", envoyconf.DefaultApp, "`ADDR` where the whole Envoy finds the app, host:port or unix:PATH")
	f.StringVar(&o.admin, "envoy-admin", envoyconf.DefaultAdmin, "`ADDR` of the whole Envoy's own admin page, or none")
	return c
}

func envoy(_ context.Context, std stdio, o envoyOptions) error {
	c, err := o.config.load(config.WithoutSecrets())
	if err != nil {
		return err
	}
	if c.Gate == nil {
		return no(errors.New(c.Path + ": no extauthz section, so there is no gate that an Envoy could ask"))
	}
	gate := envoyconf.Gate{Listen: c.Gate.Listen, Sources: c.Gate.Sources, Open: c.Gate.Open}
	text, err := envoyconf.Generate(gate, envoyconf.Options{Bootstrap: o.bootstrap, Listen: o.listen, App: o.app, Admin: o.admin})
	if err != nil {
		return no(fmt.Errorf("%s: %w", c.Path, err))
	}
	_, err = std.out.Write(text)
	return err
}
