package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/sidehook/sidehook/internal/secret"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
	"github.com/sidehook/sidehook/sidecar/config"
)

// configEnv names the environment variable with the configuration's file, where -c does not say.
const configEnv = "SIDEHOOK_CONFIG"

// configFlag is -c, --config.
type configFlag string

// register adds -c to c.
func (f *configFlag) register(c *cobra.Command) {
	c.Flags().StringVarP((*string)(f), "config", "c", "",
		"configuration `FILE` (default $"+configEnv+", else "+config.DefaultPath+")")
}

// path is the configuration's file: the flag, else the environment, else the default.
func (f configFlag) path() string {
	return cmp.Or(string(f), os.Getenv(configEnv), config.DefaultPath)
}

// load reads the configuration. An invalid one is the answer no; a file that is not there cannot be read.
func (f configFlag) load(options ...config.Option) (*config.Config, error) {
	c, err := config.Load(f.path(), options...)
	if len(config.Findings(err)) > 0 {
		return nil, no(err)
	}
	if f == "" && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w\nname the configuration with -c FILE or $%s", err, configEnv)
	}
	return c, err
}

// admin returns where the admin API of this configuration listens and the token it asks for, reading no other secret:
// a person who may call the API need not be able to read those of the sources.
func (f configFlag) admin() (addr string, token []byte, err error) {
	c, err := f.load(config.WithoutSecrets())
	if err != nil {
		if e, ok := errors.AsType[*exitError](err); ok && e.code == exitNo {
			err = e.err // here the configuration is not what was asked about
		}
		return "", nil, fmt.Errorf("find the admin API: %w\nor say where it is with --admin", err)
	}
	var src secret.Source
	switch s := c.Message.GetAdmin().GetToken().GetSource().(type) {
	case nil:
		return c.Admin.Listen, nil, nil
	case *configv1.Secret_File:
		src.File = s.File
	case *configv1.Secret_Env:
		src.Env = s.Env
	default: // {value} is in the file itself, and only a whole Load gives it
		whole, err := f.load()
		if err != nil {
			return "", nil, err
		}
		src.Value = whole.Admin.Token
	}
	token, err = loadToken(src)
	return c.Admin.Listen, token, err
}

// loadToken reads a bearer token.
func loadToken(src secret.Source) ([]byte, error) {
	s, err := src.Load()
	if err != nil {
		return nil, fmt.Errorf("read the admin API's token: %w", err)
	}
	return s.Bytes(), nil
}
